"""How fresh a recorded read is: of SQL by a tool, over HTTP by a client; for a tool, and for one call of it."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from models.journal import endpoints
from models.journal.values import Claimed
from tasks import Context, Effect, Freshness, Tool
from tasks.errors import CallPostponed
from tasks.recorder import CallOptions
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.liar import answer, liar
from tests.support.models import ModelService
from tests.support.recording import attempt, calls, configured, next_attempt

#: An attempt is half a minute older than the one before it.
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


class Filings(Tool[str, list[str]]):
    """Rows of a table that changes between two attempts."""

    name, effect = "reads.filings", Effect.PURE
    freshness, max_age = Freshness.MARK, SECOND
    path = Path()

    def execute(self, request: str, *, key: str) -> list[str]:
        with sqlite3.connect(self.path) as link:
            rows = link.execute("SELECT name FROM filing WHERE party = ? ORDER BY 1", (request,))
            return [row[0] for row in rows]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Filings, "path", tmp_path / "filings.db")
    file(Filings.path, "CREATE TABLE filing (party TEXT, name TEXT)")
    file(Filings.path, "INSERT INTO filing VALUES ('Acme', 'charter')")
    return Filings.path


def file(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as link:
        link.execute(statement)


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url):
        yield at_work()


def test_rows_are_given_again_marked_or_looked_up_anew_and_the_reader_knows_which(
    journal: Journal, claimed: Claimed, table: Path
) -> None:
    with attempt(claimed) as ctx:
        live = ctx.read(Filings(), "Acme", name="filings")
        assert (live.value, live.replayed, live.stale, live.age) == (["charter"], False, False, 0)
    file(table, "INSERT INTO filing VALUES ('Acme', 'merger')")

    with next_attempt(journal, claimed) as ctx:
        marked = ctx.read(Filings(), "Acme", name="filings")  # as the tool says
        assert (marked.value, marked.replayed, marked.stale) == (["charter"], True, True)
        assert marked.age > 30
    with next_attempt(journal, claimed) as ctx:  # as this call says
        young = ctx.read(Filings(), "Acme", name="filings", max_age=HOUR)
        assert (young.value, young.replayed, young.stale) == (["charter"], True, False)
    with next_attempt(journal, claimed) as ctx:
        plain = ctx.read(Filings(), "Acme", name="filings", freshness=Freshness.REPLAY)
        assert (plain.value, plain.replayed, plain.stale) == (["charter"], True, False)
    with next_attempt(journal, claimed) as ctx:
        anew = ctx.read(Filings(), "Acme", name="filings", freshness=Freshness.REFETCH)
        assert (anew.value, anew.replayed, anew.stale) == (["charter", "merger"], False, False)
    with attempt(again(journal, claimed)) as ctx:
        kept = ctx.read(
            Filings(), "Acme", name="filings", freshness=Freshness.REFETCH, max_age=HOUR
        )
        assert (kept.value, kept.replayed) == (["charter", "merger"], True)
        assert ctx.call(Filings(), "Nobody") == []


def test_one_request_is_as_fresh_as_it_asks_to_be_whatever_its_client_says(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def read(ctx: Context, client: Any, **options: Any) -> Any:
        extensions = {"onward": CallOptions(**options)} if options else {}
        answer = client.get(f"{models.url}/models", extensions=extensions)
        return answer.extensions["onward"]

    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        assert not read(ctx, client).replayed
    with next_attempt(journal, claimed) as ctx:
        with ctx.httpx_client(freshness=Freshness.REFETCH, max_age=SECOND) as client:
            kept = read(ctx, client, freshness=Freshness.MARK, max_age=SECOND)
        assert (kept.replayed, kept.stale) == (True, True)
        assert kept.age > 30
    with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
        anew = read(ctx, client, freshness=Freshness.REFETCH, max_age=SECOND)
        assert (anew.replayed, anew.stale, anew.age) == (False, False, 0)
    assert [(scope, state) for scope, _, state, _ in calls(journal)] == [
        ("", "complete"), ("/refreshed:0", "complete"),
    ]  # fmt: skip


def test_what_a_read_was_told_to_wait_for_is_over_when_it_is_answered(
    journal: Journal, claimed: Claimed
) -> None:
    with liar() as server:
        server.says(answer({}, status=429, retry_after="1"), answer({}, status=404))
        with (
            attempt(claimed) as ctx,
            ctx.httpx_client() as client,
            pytest.raises(CallPostponed, match="429"),
        ):
            client.get(f"{server.url}/prices")
        (told,) = journal.rows("SELECT endpoint, since FROM endpoint")
        assert told["since"] is not None
        # Its owner has fallen silent for longer than the pause lasts: nobody needs to wait here.
        journal.look.execute("UPDATE endpoint SET not_before = onward_now()")
        journal.look.commit()
        with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
            assert client.get(f"{server.url}/prices").status_code == 404
    standing = endpoints.standing(told["endpoint"])
    assert (standing.since, standing.reason, standing.wait) == (None, None, 0)
