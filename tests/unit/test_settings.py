"""Settings: read from the environment, refused when they cannot work."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from models.settings import Settings, settings


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for field in Settings.model_fields:
        monkeypatch.delenv(f"ONWARD_{field.upper()}", raising=False)
    yield
    settings.cache_clear()


def test_the_defaults_fit_together() -> None:
    made = Settings()
    assert made.lease_ttl >= 3 * made.heartbeat
    assert made.trust_margin < made.lease_ttl - made.heartbeat
    assert made.step_soft_time_limit < made.step_time_limit < made.visibility_timeout
    assert made.publish_grace < made.publish_backoff_max
    assert made.sticky is False


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONWARD_SWEEP_PERIOD", "2.5")
    settings.cache_clear()
    assert settings().sweep_period == 2.5
    monkeypatch.setenv("ONWARD_SWEEP_PERIOD", "9")
    assert settings().sweep_period == 2.5
    settings.cache_clear()
    assert settings().sweep_period == 9.0


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().lease_ttl = 5.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"lease_ttl": 29.9}, "ONWARD_LEASE_TTL=29.9 must be at least three times"),
        ({"heartbeat": 10.1}, "ONWARD_HEARTBEAT=10.1"),
        ({"trust_margin": 20.0}, "ONWARD_TRUST_MARGIN=20.0 leaves no time"),
        ({"sweep_batch": 0}, "sweep_batch"),
        ({"sweep_batch": 10_001}, "sweep_batch"),
    ],
)
def test_what_cannot_work_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        Settings(**values)


def test_the_edges_of_what_works() -> None:
    Settings(lease_ttl=30.0, heartbeat=10.0, trust_margin=19.9)
    Settings(sweep_batch=1)


@pytest.mark.parametrize(("limit", "timeout"), [(10.0, 3600.0), (900.0, 3600.0), (2000.0, 8000.0)])
def test_the_broker_waits_longer_than_the_longest_step(limit: float, timeout: float) -> None:
    assert Settings(step_time_limit=limit).visibility_timeout == timeout


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"llm_key": "sk-0123-abc"}, "takes the NAME of a secret"),
        ({"llm_base_url": "models.example"}, "must be a URL"),
        (
            {"llm_base_url": "https://me:hunter2@models.example/v1"},
            "since it is recorded with every call",
        ),
        ({"model_endpoints": "https://a.example/v1,ftp://b.example"}, "must be a URL"),
        (
            {"model_endpoints": "https://a.example/v1?key=abc"},
            "neither a user, a password, a query",
        ),
        ({"llm_provider": "other"}, "llm_provider"),
        ({"llm_timeout": 0}, "llm_timeout"),
        ({"artifact_limit": 0}, "artifact_limit"),
        ({"encryption_key": "k", "encryption_key_command": "vault read"}, "are both set"),
    ],
)
def test_settings_of_models_and_artifacts_are_checked(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        Settings(**values)
    shown = str(refused.value)
    assert not any(secret in shown for secret in ("sk-0123", "hunter2", "key=abc", "'k'"))


def test_all_model_endpoints_are_declared_ones() -> None:
    made = Settings(
        llm_base_url="http://127.0.0.1:8700/v1/", model_endpoints=" https://a.example/v1, "
    )
    assert made.model_urls == ("https://a.example/v1", "http://127.0.0.1:8700/v1")
    assert Settings().model_urls == ("https://api.openai.com/v1", "https://api.anthropic.com/v1")
    assert Settings(model_endpoints="").model_urls == ()


def test_artifacts_lie_in_the_home_and_a_key_is_not_shown() -> None:
    assert Settings(home="/srv/onward").artifacts == "/srv/onward/artifacts"
    assert Settings(artifacts="s3://bucket/onward").artifacts == "s3://bucket/onward"
    assert "very-secret" not in repr(Settings.model_validate({"encryption_key": "very-secret"}))
