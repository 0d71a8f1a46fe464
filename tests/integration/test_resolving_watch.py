"""Every run that stands still because of an effect names it (I8)."""

from typing import Any

from models.journal import effects, runs
from models.journal.values import Claimed
from recovery import watch
from tests.support.intents import KEY, asking, at_work, put, send
from tests.support.journal import Journal, Worker, at, submit_run


def in_doubt(journal: Journal, **row: Any) -> Claimed:
    claimed = at_work()
    send(claimed)
    effects.doubt(KEY, claimed, error="no answer", call_over=True)
    Worker().interrupt(claimed)
    if row:
        put(journal, **row)
    return claimed


def serve(journal: Journal, queue: str = "steps.toy@1") -> None:
    """A worker of this queue."""
    journal.look.execute(
        "INSERT INTO worker (start_id, name, host, pid, pid_started, pid_space, queues, concurrency)"
        " VALUES ('s', 'w', 'h', 1, 1, '', ARRAY[%s], 1)",
        (queue,),
    )


def test_a_look_that_nobody_makes(journal: Journal) -> None:
    claimed = in_doubt(journal)
    (reason,) = watch.stuck_runs().values()
    assert reason.word == "no_worker"
    assert f"effect {KEY} of registry.file" in reason.sentence
    serve(journal)
    assert watch.stuck_runs() == {}
    assert watch.why(claimed.run_id).word == "unknown_effect"


def test_an_effect_for_a_person_in_a_run_that_moves(journal: Journal) -> None:
    serve(journal)
    claimed = in_doubt(journal, person="its tool cannot be asked")
    assert watch.stuck_runs()[claimed.run_id].word == "unknown_effect"


def test_what_was_last_found_is_told(journal: Journal) -> None:
    serve(journal)
    claimed = in_doubt(journal, checks=2)
    for words in ("nothing there", "it is being made"):
        journal.look.execute(
            "INSERT INTO event (run_id, kind, detail) VALUES (%s, 'effect_looked', %s)",
            (claimed.run_id, f"{KEY}: {words}"),
        )
    journal.look.execute(
        "INSERT INTO event (run_id, kind, detail) VALUES (%s, 'effect_looked', %s)",
        (claimed.run_id, f"{KEY}0: of another effect"),
    )
    assert "(2 looks, last: it is being made)" in watch.why(claimed.run_id).sentence


def test_a_hand_out_is_no_look_under_way(journal: Journal) -> None:
    serve(journal)
    claimed = in_doubt(journal, looker_until="2100-01-01Z", due_at="2100-01-01Z")
    assert "next look now" not in watch.why(claimed.run_id).sentence
    put(journal, looker="look-1")
    assert "next look now" in watch.why(claimed.run_id).sentence


def compensate(journal: Journal, run_id: str, **row: Any) -> None:
    facts = {"state": "undoing", "queue": "steps.toy@1", "error": None, **row, "run_id": run_id}
    journal.look.execute(
        "INSERT INTO compensation (run_id, state, run_state, requested_by, queue, error)"
        " VALUES (%(run_id)s, %(state)s, 'completed', 'bob', %(queue)s, %(error)s)",
        facts,
    )


def test_a_compensation_that_nobody_does_or_that_is_blocked(journal: Journal) -> None:
    done, blocked = (submit_run(at("a")) for _ in range(2))
    for run_id in (done, blocked):
        Worker().do(run_id, "a")
    assert watch.stuck_runs() == {}
    compensate(journal, done)
    compensate(journal, blocked, state="blocked", error="no such order")
    stuck = watch.stuck_runs()
    assert stuck[done].word == "no_worker"
    assert stuck[blocked].sentence == "Undoing its effects is blocked: no such order"
    serve(journal)
    assert list(watch.stuck_runs()) == [blocked]
    assert watch.why(done).word == "compensating"


def test_effects_of_one_run_are_not_anothers(journal: Journal) -> None:
    serve(journal)
    in_doubt(journal)
    other = at_work()
    send(other, asking("other"))
    assert watch.why(other.run_id).word == "running"


def test_an_untracked_step_that_nobody_asks_about(journal: Journal) -> None:
    """Its look-up is asked where its code is: without a worker no sweep ever decides it."""
    claimed = at_work()
    Worker().interrupt(claimed)
    journal.make(claimed.run_id, untracked=True, due_at="2100-01-01Z")
    (reason,) = watch.stuck_runs().values()
    assert reason.word == "no_worker"
    assert "'a'" in reason.sentence
    assert "'steps.toy@1'" in reason.sentence
    serve(journal)
    assert watch.stuck_runs() == {}
    assert watch.why(claimed.run_id).word == "unknown"


def test_a_cancelled_run_whose_effect_nobody_looks_up(journal: Journal) -> None:
    claimed = in_doubt(journal)
    runs.cancel(claimed.run_id, by="ada", reason="no", cancellation_id="c")
    (reason,) = watch.stuck_runs().values()
    assert reason.word == "no_worker"
    assert reason.sentence.startswith("Cancelled;")
    serve(journal)
    assert watch.stuck_runs() == {}
    assert watch.why(claimed.run_id).word == "cancelling"


def test_a_compensation_whose_first_question_nobody_asks(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.look.execute("UPDATE run SET state = 'compensating', hold = 'compensate'")
    serve(journal, "another")
    compensate(journal, claimed.run_id, queue="another")
    assert watch.stuck_runs()[claimed.run_id].word == "no_worker"


def test_a_blocked_undo_beside_a_failed_run_is_named_too(journal: Journal) -> None:
    run_id = submit_run(at("a"))
    worker = Worker()
    worker.fail(worker.take(run_id, "a"))
    compensate(journal, run_id, state="blocked", error="no such order")
    reason = watch.why(run_id)
    assert reason.sentence.endswith("Undoing its effects is blocked: no such order")
