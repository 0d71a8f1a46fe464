"""Verification of effects on the real journal: silent on every honest history, and it names each oddity."""

from typing import LiteralString

import pytest

from models.journal import compensations, effects, undoing
from recovery.verify import look, verify
from tests.support.honest import HonestWorker, tamper
from tests.support.intents import put
from tests.support.journal import Journal, row_of, submit_run
from tests.support.shelf import Mail, PutByKey, ask, did


def words(run_id: str) -> list[str]:
    return [finding.word for finding in verify(run_id)]


def completed_with_effects(*names: str) -> tuple[str, list[str]]:
    """A completed run whose one step did this."""
    run_id, worker = submit_run(row_of("a")), HonestWorker()
    claimed = worker.take(run_id, "a")
    keys = [did(claimed, PutByKey(), name) for name in names]
    worker.complete(claimed)
    return run_id, keys


def test_settled_effects_verify(journal: Journal) -> None:
    run_id, _ = completed_with_effects("one", "two")
    assert verify(run_id) == []
    assert look(run_id).left_over == []


def test_an_effect_in_doubt_of_a_completed_step_is_named(journal: Journal) -> None:
    run_id, worker = submit_run(row_of("a", "b")), HonestWorker()
    claimed = worker.take(run_id, "a")
    key = ask(claimed, Mail(), "letter")
    assert verify(run_id) == [], "its owner holds it"
    worker.complete(claimed)
    assert words(run_id) == ["effect_in_doubt"]
    put(journal, key=key, state="unknown", person="nobody knows")
    worker.do(run_id, "b")
    (finding,) = verify(run_id)
    assert finding.where == key
    assert "nobody knows" in finding.sentence
    put(journal, key=key, state="absent")
    assert verify(run_id) == []


@pytest.mark.parametrize("column", ["result", "result_digest"])
def test_a_result_that_was_changed_is_named(journal: Journal, column: str) -> None:
    run_id, keys = completed_with_effects("one", "two")
    statement: LiteralString = (
        "UPDATE effect_settlement SET result = '7' WHERE key = %s"
        if column == "result"
        else "UPDATE effect_settlement SET result_digest = 'sha256:0' WHERE key = %s"
    )
    tamper(journal, statement, keys[1])
    assert [(finding.word, finding.where) for finding in verify(run_id)] == [
        ("effect_changed", keys[1])
    ]


def test_what_the_finished_body_did_not_ask_for_is_named_until_it_is_undone(
    journal: Journal,
) -> None:
    run_id, worker = submit_run(row_of("a")), HonestWorker()
    first = worker.take(run_id, "a")
    keys = [did(first, PutByKey(), name) for name in ("asked", "not asked")]
    worker.retry(first)
    second = worker.take(run_id, "a")
    assert effects.note_unasked(second, {keys[0]}) == keys[1:]
    worker.complete(second)
    (finding,) = verify(run_id)
    assert (finding.word, finding.where) == ("effect_not_asked_again", keys[1])
    assert f"runs compensate {run_id} --only {keys[1]}" in finding.sentence
    (line,) = look(run_id).left_over
    assert line.endswith("not undone")

    compensations.request(run_id, only=keys[1:], by="ada", reason="left over")
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    (target,) = undoing.to_undo(doing)
    undo = undoing.undo_of(target, doing)
    undoing.give_up(undo, reason="no", worker="worker-1")
    assert words(run_id) == ["effect_not_asked_again"]
    undoing.found_undone(undo, tool_version="1", result="null", reason="by hand", worker="worker-1")
    assert verify(run_id) == []
    (line,) = look(run_id).left_over
    assert line.endswith(": undone")


def test_a_compensated_run_has_everything_undone(journal: Journal) -> None:
    run_id, keys = completed_with_effects("one", "two")
    tamper(
        journal, "UPDATE run SET state = 'compensated', result_key = NULL WHERE run_id = %s", run_id
    )
    assert [(one.word, one.where) for one in verify(run_id)] == [
        ("not_undone", keys[0]),
        ("not_undone", keys[1]),
    ]
