"""What the doctor makes of settings and of servers that are not there."""

from collections.abc import Iterator

import pytest

from models import database
from models.settings import settings
from ops import doctor
from ops.doctor import Verdict
from tasks import Context, registry, step, workflow
from tasks.canvas import Canvas


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Settings of this test's own, and no workflow loaded."""
    monkeypatch.setenv("ONWARD_AGENTS", "")
    settings.cache_clear()
    with registry.isolated():
        yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()
    database.close()


@step(time_limit=7200)
def long(ctx: Context) -> None:
    """Longer than the default visibility timeout of an hour."""


def _plan() -> Canvas:
    return long.s()


def test_only_noeviction_keeps_messages() -> None:
    assert doctor.check_eviction("noeviction").verdict is Verdict.OK
    assert doctor.check_eviction("allkeys-lru").verdict is Verdict.FAIL


def test_a_step_longer_than_the_visibility_timeout_is_found(
    surroundings: pytest.MonkeyPatch,
) -> None:
    assert doctor.check_visibility().verdict is Verdict.OK
    workflow("long", version="1")(_plan)
    found = doctor.check_visibility()
    assert (found.verdict, "7200 s" in found.sentence) == (Verdict.FAIL, True)
    surroundings.setenv("ONWARD_STEP_TIME_LIMIT", "7200")
    settings.cache_clear()
    assert doctor.check_visibility().verdict is Verdict.OK


@pytest.mark.parametrize(
    ("lease", "beat", "period", "verdict"),
    [("30", "10", "5", "ok"), ("9", "2", "20", "warn"), ("3", "1", "0.5", "warn")],
)
def test_leases_leave_room(
    surroundings: pytest.MonkeyPatch, lease: str, beat: str, period: str, verdict: str
) -> None:
    surroundings.setenv("ONWARD_LEASE_TTL", lease)
    surroundings.setenv("ONWARD_HEARTBEAT", beat)
    surroundings.setenv("ONWARD_TRUST_MARGIN", "0.5")
    surroundings.setenv("ONWARD_SWEEP_PERIOD", period)
    settings.cache_clear()
    assert doctor.check_leases().verdict == verdict


def test_servers_that_are_not_there_are_told_and_the_rest_is_still_checked(
    surroundings: pytest.MonkeyPatch,
) -> None:
    surroundings.setenv("ONWARD_DATABASE_URL", "postgresql+psycopg://onward@127.0.0.1:1/onward")
    surroundings.setenv("ONWARD_BROKER_URL", "redis://127.0.0.1:1/0")
    settings.cache_clear()
    found = {check.name: check for check in doctor.examine()}
    assert {name: str(check.verdict) for name, check in found.items()} == {
        "packages": "ok", "leases": "ok", "agents": "warn", "visibility": "ok", "database": "fail",
        "broker": "fail",
    }  # fmt: skip
    assert "ONWARD_DATABASE_URL" in found["database"].advice
    assert "keeps all work" in found["broker"].advice


def test_settings_that_cannot_be_end_the_examination(surroundings: pytest.MonkeyPatch) -> None:
    surroundings.setenv("ONWARD_LEASE_TTL", "1")
    settings.cache_clear()
    checks = doctor.examine()
    assert [(check.name, check.verdict) for check in checks] == [
        ("packages", Verdict.OK), ("settings", Verdict.FAIL),
    ]  # fmt: skip
    assert "three times" in checks[-1].sentence


def test_agents_that_cannot_be_loaded_are_named(surroundings: pytest.MonkeyPatch) -> None:
    surroundings.setenv("ONWARD_AGENTS", "acme_gone")
    settings.cache_clear()
    found = doctor.check_agents()
    assert (found.verdict, "acme_gone" in found.sentence) == (Verdict.FAIL, True)
