"""An answer that came is kept: through an outage of the database, and of the store of large texts."""

import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx2
import pytest

from models import database
from models.journal import endpoints, wallets
from models.journal.values import Claimed
from models.settings import settings
from tasks import Context
from tasks.errors import CallPostponed
from tasks.recorder import CallOptions, asking
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.meter import meter
from tests.support.models import Answer, ModelService
from tests.support.recording import attempt, calls, chat, configured, next_attempt, said


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url):
        yield at_work()


def ask(ctx: Context, models: ModelService, text: str) -> httpx2.Response:
    with ctx.httpx_client() as client:
        response: httpx2.Response = client.post(f"{models.url}/chat/completions", json=chat(text))
        return response


@pytest.mark.parametrize("troubled", [False, True])
def test_an_answer_is_recorded_though_the_database_went_away_when_it_came(
    journal: Journal, models: ModelService, claimed: Claimed, *, troubled: bool
) -> None:
    """Whatever else is to be written down about its endpoint comes after it."""
    if troubled:
        endpoints.strike(models.url, reason="it was away")
        journal.look.execute("UPDATE endpoint SET not_before = NULL")
        journal.look.commit()
    own = database.connection().info.backend_pid

    def cut(_: bytes) -> None:
        journal.look.execute("SELECT pg_terminate_backend(%s, 5000)", (own,))
        journal.look.commit()

    with attempt(claimed) as ctx, asking(CallOptions(on_chunk=cut)):
        first = said(ask(ctx, models, "still there?"))
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, models, "still there?")) == first
    assert models.count("still there?") == 1
    assert calls(journal) == [("", 0, "complete", None)]
    assert endpoints.standing(models.url).strikes == 0


def test_being_told_to_wait_is_one_commit_with_the_money_that_is_given_back(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    """Killed between two, its step would ask before the time, or pay for nothing."""
    models.fault("busy", Answer(status=429, retry_after=60))
    with attempt(claimed) as ctx:
        ask(ctx, models, "first")  # opens the wallet
        with meter(journal) as spent, pytest.raises(CallPostponed):
            ask(ctx, models, "busy")
    assert spent.durable == 2  # set aside; given back and left alone
    standing = wallets.standing(claimed.run_id)
    assert (standing.held_calls, standing.recovery_cost) == (0, Decimal(0))
    assert endpoints.standing(models.url).wait > 50


def test_a_large_answer_waits_for_the_store_and_is_not_asked_for_again(
    journal: Journal, models: ModelService, claimed: Claimed, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    store = tmp_path / "store"
    store.write_text("something else lies here")
    monkeypatch.setenv("ONWARD_ARTIFACTS", str(store))
    monkeypatch.setenv("ONWARD_OUTPUT_LIMIT", "1000")
    settings.cache_clear()
    models.script("at length", "many words " * 1000)
    seen: list[str] = []

    class Repairing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            store.unlink(missing_ok=True)

    repairing = Repairing()
    log = logging.getLogger("onward.engine")
    log.addHandler(repairing)
    try:
        with attempt(claimed) as ctx:
            first = said(ask(ctx, models, "at length"))
    finally:
        log.removeHandler(repairing)
    assert any("artifact store" in line for line in seen)
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, models, "at length")) == first == "many words " * 1000
    assert models.count("at length") == 1
    assert len(journal.rows("SELECT answer FROM recorded_call")[0]["answer"]) < 1000
