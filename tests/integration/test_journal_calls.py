"""Calls on record: what an attempt finds, what it may add, and what was made of each answer."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from models.digests import digest_text
from models.journal import calls, effects, failing, runs
from models.journal.call_values import Place
from models.journal.errors import JournalError, Refused
from models.settings import settings
from tests.support.calling import (
    ENDPOINT,
    HERE,
    amounts,
    asked,
    at_position,
    charge,
    charge_strays,
    hold,
    record,
    reservation,
)
from tests.support.intents import KEY, PURE, SENDER, again, asking, at_work, put, send
from tests.support.journal import Journal, Worker


def recorded(journal: Journal) -> list[dict[str, Any]]:
    return journal.rows("SELECT * FROM recorded_call ORDER BY answered_at, scope, position")


def test_a_step_begins_with_nothing_on_record(journal: Journal) -> None:
    claimed = at_work()
    found = calls.history(claimed)
    assert (found.generation, found.pardoned_token, found.calls) == (0, 0, {})


def test_what_is_recorded_is_all_there(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    record(claimed, asked(cost=Decimal("0.02"), response_id="resp-1"))
    (row,) = recorded(journal)
    now = journal.one("SELECT onward_now()")
    assert (row["run_id"], row["step_key"]) == (claimed.run_id, "a")
    assert (row["generation"], row["scope"], row["position"]) == (0, "", 0)
    assert (row["endpoint"], row["request"]) == (ENDPOINT, '{"messages":[]}')
    assert (row["token"], row["attempt"], row["worker"]) == (1, 1, "worker-1")
    assert (row["answered_at"], row["answered_at"] - row["started_at"]) == (
        now,
        timedelta(seconds=2),
    )
    journal.advance(7)
    (one,) = calls.history(claimed).calls.values()
    assert (one.place, one.kind, one.digest, one.state) == (
        HERE,
        "model",
        "sha256:request",
        "complete",
    )
    assert (one.status, one.headers, one.response_id) == (200, "{}", "resp-1")
    assert (one.model, one.model_answered, one.token) == ("gpt-x", "gpt-x", 1)
    assert (one.tokens_in, one.tokens_out, one.cost) == (7, 5, Decimal("0.02"))
    assert (one.verdict, one.age) == (None, 7.0)
    assert calls.answer(claimed, HERE) == '{"choices":[]}'
    assert calls.request(claimed, HERE) == '{"messages":[]}'


def test_the_next_attempt_finds_what_the_one_before_recorded(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    record(first, asked(at_position(0, "/1")))
    record(first, asked(at_position(0, "/2"), answer="other"))
    second = again(journal, first)
    assert set(calls.history(second).calls) == {("/1", 0), ("/2", 0)}
    assert calls.answer(second, at_position(0, "/2")) == "other"
    record(second, asked(at_position(1, "/2")))
    assert [row["token"] for row in recorded(journal)] == [1, 1, 2]


def test_another_step_has_records_of_its_own(journal: Journal) -> None:
    first = at_work()
    record(first)
    worker = Worker()
    worker.complete(first)
    following = worker.take(first.run_id, "b")
    assert calls.history(following).calls == {}
    with pytest.raises(JournalError, match="nothing on record at position 0 of scope ''"):
        calls.answer(following, HERE)


def test_the_same_write_again_changes_nothing(journal: Journal) -> None:
    claimed = at_work()
    record(claimed)
    before = journal.image(), recorded(journal)
    record(claimed)
    assert (journal.image(), recorded(journal)) == before


@pytest.mark.parametrize("change", [{"answer": "other"}, {"digest": "sha256:other"}])
def test_a_place_has_one_answer(journal: Journal, change: dict[str, Any]) -> None:
    claimed = at_work()
    record(claimed)
    with pytest.raises(JournalError, match="two calls went by the same place"):
        record(claimed, asked(**change))
    assert len(recorded(journal)) == 1


def test_an_answer_and_its_price_are_one_commit(journal: Journal) -> None:
    claimed = at_work()
    made = hold(claimed)
    assert amounts(journal, claimed.run_id) == ((100, Decimal("0.10"), 1), (0, 0, 0))
    record(claimed, reservation=made, charge=charge())
    assert amounts(journal, claimed.run_id) == ((0, 0, 0), (12, Decimal("0.02"), 1))
    (row,) = journal.rows("SELECT r.xmin::text = s.xmin::text AS one FROM recorded_call r, spend s")
    assert row["one"]
    (spend,) = journal.rows("SELECT * FROM spend")
    assert (spend["tokens"], spend["cost"], spend["recovery"]) == (12, Decimal("0.02"), False)
    assert (spend["seconds"], spend["model"], spend["wallet_id"]) == (2.0, "gpt-x", claimed.run_id)
    record(claimed, reservation=made, charge=charge())
    assert amounts(journal, claimed.run_id) == ((0, 0, 0), (12, Decimal("0.02"), 1))


def test_an_answer_without_a_price_gives_back_what_was_held(journal: Journal) -> None:
    claimed = at_work()
    record(claimed, reservation=hold(claimed), charge=None)
    assert amounts(journal, claimed.run_id) == ((0, 0, 0), (0, 0, 0))
    assert journal.rows("SELECT * FROM spend") == []


def test_a_verdict_says_what_was_made_of_an_answer(journal: Journal) -> None:
    claimed = at_work()
    record(claimed)
    record(claimed, asked(at_position(1)))
    calls.judge(claimed, HERE, verdict="rejected", reason="no\x00 total")
    calls.judge(claimed, at_position(1), verdict="accepted")
    calls.judge(claimed, at_position(1), verdict="rejected", reason="a second opinion")
    verdicts = {place: one.verdict for place, one in calls.history(claimed).calls.items()}
    assert verdicts == {("", 0): "rejected", ("", 1): "accepted"}
    shown = calls.of_run(claimed.run_id)
    assert [one.verdict for one in shown] == ["rejected", "accepted"]
    assert shown[0].reason is not None
    assert "\x00" not in shown[0].reason
    assert [one.current for one in shown] == [True, True]


def test_a_branch_sets_the_records_aside(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    record(first)
    assert calls.open_branch(first, "it asked for something else") == 1
    assert calls.open_branch(first, "it asked for something else") == 1
    assert calls.history(first).calls == {}
    record(first, asked(at_position(0, generation=1), answer="new"))
    second = again(journal, first)
    found = calls.history(second)
    assert (found.generation, list(found.calls)) == (1, [("", 0)])
    assert calls.answer(second, at_position(0, generation=1)) == "new"
    assert calls.open_branch(second, "and again") == 2
    assert [one.current for one in calls.of_run(first.run_id)] == [False, False]
    assert journal.events(first.run_id).count("calls_branched") == 2


@pytest.mark.parametrize("state", ["intended", "unknown"])
def test_effects_in_doubt_forbid_a_branch(journal: Journal, state: str) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, state=state)
    assert calls.has_effects(claimed)
    with pytest.raises(Refused, match="effects that may have happened"):
        calls.open_branch(claimed, "because")
    assert calls.history(claimed).generation == 0


def test_what_happened_forbids_a_branch_and_what_did_not_allows_it(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    for state in ("refused", "absent"):
        put(journal, state=state)
        assert not calls.has_effects(claimed)
    put(journal, state="intended")
    effects.settle(KEY, claimed, result="1")
    assert calls.has_effects(claimed)
    worker = Worker()
    worker.complete(claimed)
    following = worker.take(claimed.run_id, "b")
    effects.record_pure(asking("pure-key", PURE), following, SENDER, result="1")
    assert not calls.has_effects(following)


def test_a_pardon_reaches_up_to_the_claim_it_was_given_after(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    calls.pardon(first.run_id, "a", actor="ada", reason="tried again")
    calls.pardon(first.run_id, "a", actor="ada", reason="tried again")
    second = again(journal, first)
    assert calls.history(second).pardoned_token == 1
    calls.pardon(first.run_id, "a", actor="ada", reason="and again")
    assert calls.history(second).pardoned_token == 2
    assert journal.events(first.run_id).count("answers_pardoned") == 2


@pytest.mark.parametrize("table", ["recorded_call", "call_verdict", "spend", "call_reset"])
@pytest.mark.parametrize(
    "statement", ["UPDATE {} SET run_id = run_id", "DELETE FROM {}", "TRUNCATE {}"]
)
def test_what_is_on_record_never_changes(journal: Journal, table: str, statement: str) -> None:
    claimed = at_work()
    record(claimed, reservation=hold(claimed), charge=charge())
    calls.judge(claimed, HERE, verdict="accepted")
    calls.open_branch(claimed, "because")
    with pytest.raises(pg.RestrictViolation, match=f"table {table} of the journal is insert-only"):
        journal.look.execute(sql.SQL(statement).format(sql.Identifier(table)))


@pytest.mark.parametrize(
    ("call", "constraint"),
    [
        (asked(kind="guess"), "ck_recorded_call_kind"),
        (asked(state="fine"), "ck_recorded_call_state"),
    ],
)
def test_rows_that_mean_nothing_are_refused(journal: Journal, call: Any, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        record(at_work(), call)


def test_a_rejection_has_a_reason(journal: Journal) -> None:
    claimed = at_work()
    record(claimed)
    calls.judge(claimed, HERE, verdict="rejected")
    assert calls.of_run(claimed.run_id)[0].reason == ""


def test_a_reservation_of_the_place_alone_is_not_enough_to_settle_another(journal: Journal) -> None:
    claimed = at_work()
    hold(claimed, reservation(send=0))
    hold(claimed, reservation(send=1))
    record(claimed, reservation=reservation(send=1), charge=charge())
    assert amounts(journal, claimed.run_id) == ((100, Decimal("0.10"), 1), (12, Decimal("0.02"), 1))
    assert Place(0, "", 0) == HERE


def test_large_texts_lie_in_the_store_and_come_back_whole(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONWARD_ARTIFACTS", str(tmp_path))
    monkeypatch.setenv("ONWARD_OUTPUT_LIMIT", "1000")
    settings.cache_clear()
    claimed = at_work()
    large = asked(request="q" * 3000, answer="a" * 3000)
    record(claimed, large)
    record(claimed, large)
    (row,) = recorded(journal)
    assert len(row["request"]) + len(row["answer"]) < 1000
    assert row["answer_digest"] == digest_text("a" * 3000)
    assert calls.answer(claimed, HERE) == "a" * 3000
    assert calls.request(claimed, HERE) == "q" * 3000
    uses = journal.rows("SELECT name FROM artifact_use ORDER BY name")
    assert [use["name"] for use in uses] == ["answer@/0", "request@/0"]


def test_a_pending_answer_that_nobody_waits_for_is_charged(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    hold(claimed)
    record(claimed, asked(state="pending"))
    Worker().complete(claimed)
    assert charge_strays(10) == 1


def test_the_reason_of_a_rejection_is_read_back(journal: Journal) -> None:
    claimed = at_work()
    record(claimed)
    calls.judge(claimed, HERE, verdict="rejected", reason="no total")
    assert calls.history(claimed).calls["", 0].reason == "no total"


@pytest.mark.parametrize(
    ("error_type", "pardoned"),
    [("schema_invalid", 1), ("answer_length", 1), ("ValueError", 0), ("answers", 0)],
)
def test_who_sends_a_step_back_lets_it_ask_anew(
    journal: Journal, error_type: str, pardoned: int
) -> None:
    claimed = at_work()
    failing.fail(claimed, worker="worker-1", error_type=error_type, error="no answer fits")
    assert runs.send_back(claimed.run_id, by="ada") == ["a"]
    assert calls.history(claimed).pardoned_token == pardoned
    found = journal.rows("SELECT actor, reason FROM call_reset")
    assert found == [{"actor": "ada", "reason": f"sent back after {error_type}"}] * pardoned
