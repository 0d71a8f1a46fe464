"""Verification on the real journal: silent on every honest history, and it names each tampering."""

from typing import LiteralString

import pytest

from models.journal import evidence, rescue, runs, steps
from models.journal.errors import UnknownRun
from models.journal.values import Output
from recovery.verify import verify, verify_recovered
from recovery.watch import why
from tasks import group
from tasks.canvas import Canvas
from tasks.inputs import digests
from tests.support.honest import HonestWorker, tamper
from tests.support.journal import Journal, Worker, at, row_of, submit_run


def finish(run_id: str, worker: Worker) -> None:
    """Walk whatever is due until nothing is."""
    while due := [ref for ref in evidence.of_run(run_id).live if ref.missing == 0]:
        for ref in due:
            worker.do(run_id, ref.step_key, branch=ref.branch)


def branch_of(run_id: str, step_key: str) -> str:
    return next(ref.branch for ref in evidence.of_run(run_id).live if ref.step_key == step_key)


def words(run_id: str) -> list[str]:
    return [finding.word for finding in verify(run_id)]


@pytest.mark.parametrize(
    "canvas",
    [
        row_of("a", "b", "c"),
        at("a") | group(at("b"), row_of("c", "d")) | at("e"),
        group(at("a"), at("b")) | at("c"),
        at("a") | group(at("b") | group(at("c"), at("d")) | at("e"), at("f")) | at("g"),
    ],
    ids=["chain", "group", "group-first", "groups-in-groups"],
)
def test_a_straight_run_verifies_at_every_moment(journal: Journal, canvas: Canvas) -> None:
    run_id = submit_run(canvas)
    worker = HonestWorker()
    while due := [ref for ref in evidence.of_run(run_id).live if ref.missing == 0]:
        claimed = worker.take(run_id, due[0].step_key, due[0].branch)
        assert verify(run_id) == []
        worker.complete(claimed, '"done"')
        assert verify(run_id) == []
    assert journal.run(run_id)["state"] == "completed"


def test_a_run_full_of_trouble_verifies(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b", "c"))
    worker = HonestWorker()
    late = worker.take(run_id, "a")
    assert journal.lose() == 1
    (stale,) = rescue.unknown_steps(limit=1)
    assert rescue.requeue([journal.ref(run_id)], [0.0]) == 1
    steps.keep_evidence(late, Output('"late"', *digests(late, '"late"')), worker="worker-1")
    worker.do(run_id, "a")
    worker.retry(worker.take(run_id, "b"))
    worker.fail(worker.take(run_id, "b"))
    assert verify(run_id) == []
    assert runs.send_back(run_id, by="me") == ["b"]
    worker.interrupt(worker.take(run_id, "b"))
    assert rescue.requeue([journal.ref(run_id)], [0.0]) == 1
    worker.do(run_id, "b", "c")
    assert stale.step_key == "a"
    assert journal.run(run_id)["state"] == "completed"
    assert verify(run_id) == []


def test_steps_added_while_running_verify(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "z"))
    worker = HonestWorker()
    claimed = worker.take(run_id, "a")
    worker.then(claimed, at("b") | group(at("c"), at("d")))
    assert verify(run_id) == []
    finish(run_id, worker)
    assert journal.run(run_id)["state"] == "completed"
    assert verify(run_id) == []


def test_a_tolerated_failure_explains_what_never_ran(journal: Journal) -> None:
    member = at("b") | group(at("c"), at("d")) | at("e")
    run_id = submit_run(at("a") | group(member, at("f"), tolerant=True) | at("g"))
    worker = HonestWorker()
    worker.do(run_id, "a")
    worker.do(run_id, "b", branch=branch_of(run_id, "b"))
    worker.fail(worker.take(run_id, "c", branch_of(run_id, "c")))
    finish(run_id, worker)
    assert journal.run(run_id)["state"] == "completed"
    assert journal.states(run_id)["e"] == "not_reached"
    assert verify(run_id) == []
    tamper(journal, "DELETE FROM step WHERE run_id = %s AND step_key = 'f'", run_id)
    assert words(run_id) == ["input_changed", "never_ran", "join_incomplete"]


def test_a_cancelled_run_verifies(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    HonestWorker().do(run_id, "a")
    runs.cancel(run_id, by="me", reason="test", cancellation_id="cancel-1")
    rescue.cancel_branches(rescue.cancellable(limit=10))
    runs.settle(run_id)
    assert journal.run(run_id)["state"] == "cancelled"
    assert verify(run_id) == []


TAMPERINGS: dict[str, tuple[LiteralString, list[str]]] = {
    "an output is changed": (
        "UPDATE step SET output = '\"forged\"' WHERE run_id = %s AND step_key = 'b'",
        ["output_changed", "input_changed"],
    ),
    "an output and its digest are changed": (
        "UPDATE step SET output = '1', output_digest = 'sha256:' || encode(sha256('1'), 'hex')"
        " WHERE run_id = %s AND step_key = 'b'",
        ["input_changed"],
    ),
    "the result is gone": (
        "DELETE FROM step WHERE run_id = %s AND step_key = 'c'",
        ["no_result", "never_ran"],
    ),
    "a step in the middle is gone": (
        "DELETE FROM step WHERE run_id = %s AND step_key = 'b'",
        ["input_changed", "never_ran", "out_of_order", "token_gap"],
    ),
    "a claim is gone": (
        "DELETE FROM attempt WHERE run_id = %s",
        ["attempts_miscounted", "token_gap"],
    ),
    "a token is used twice": (
        "UPDATE step SET token = 3 WHERE run_id = %s AND step_key = 'c'",
        ["token_shared"],
    ),
    "the input is changed": (
        "UPDATE run SET input = '{\"other\": 1}' WHERE run_id = %s",
        ["input_changed"],
    ),
    "a planned step is gone": (
        "DELETE FROM plan WHERE run_id = %s AND step_key = 'b'",
        ["input_changed", "not_planned", "out_of_order", "plan_count"],
    ),
    "a step was never planned to follow": (
        "UPDATE step SET prev_key = 'a' WHERE run_id = %s AND step_key = 'c'",
        ["input_changed", "out_of_order"],
    ),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_named(journal: Journal, what: str) -> None:
    statement, expected = TAMPERINGS[what]
    run_id = submit_run(row_of("a", "b", "c"))
    worker = HonestWorker()
    worker.retry(worker.take(run_id, "a"))
    worker.do(run_id, "a", "b", "c")
    assert verify(run_id) == []
    tamper(journal, statement, run_id)
    assert set(words(run_id)) == set(expected), verify(run_id)


def test_a_run_that_does_not_exist_cannot_be_verified(journal: Journal) -> None:
    with pytest.raises(UnknownRun, match="no run 'run-none'"):
        verify("run-none")


def lose_and_finish(journal: Journal, worker: Worker) -> str:
    run_id = submit_run(row_of("a", "b"))
    worker.take(run_id, "a")
    journal.lose()
    rescue.requeue([journal.ref(run_id)], [0.0])
    worker.do(run_id, "a", "b")
    return run_id


def test_recovered_runs_are_verified_once_and_told(journal: Journal) -> None:
    journal.freeze()
    worker = HonestWorker()
    untroubled, sound, broken = (
        submit_run(row_of("a")), lose_and_finish(journal, worker), lose_and_finish(journal, worker),
    )  # fmt: skip
    worker.do(untroubled, "a")
    under_way = submit_run(row_of("a"))
    worker.take(under_way, "a")
    journal.lose()
    tamper(journal, "UPDATE step SET output = '7' WHERE run_id = %s AND step_key = 'b'", broken)

    verified = verify_recovered()
    assert {run_id: len(found) for run_id, found in verified.items()} == {sound: 0, broken: 1}
    assert journal.events(sound)[-1] == "run_verified"
    assert journal.events(broken)[-1] == "verification_failed"
    assert "run_verified" not in journal.events(untroubled) + journal.events(under_way)
    assert verify_recovered() == {}
    assert why(sound).word == "completed"


def test_verification_is_one_process_at_a_time(journal: Journal) -> None:
    journal.freeze()
    lose_and_finish(journal, HonestWorker())
    with journal.connect() as other:
        other.execute("SELECT pg_advisory_lock(%s)", (0x5645_5246,))
        assert verify_recovered() == {}
        other.execute("SELECT pg_advisory_unlock_all()")
    assert len(verify_recovered()) == 1
