"""What the sweep, the wake and the fast path do about effects in doubt: messages to where the tools are."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from models.journal import effects, lookups, runs
from models.settings import settings
from recovery import sweep, wake
from recovery.sweep import RECONCILING, Swept, sweep_once
from tests.support.broker import publisher, sent
from tests.support.intents import IDEMPOTENT, KEY, asking, at_work, effect, put, send
from tests.support.journal import Journal, Worker
from tests.support.looking import OTHER, VERBS, begun, in_doubt

QUEUE = "steps.toy@1"
#: A port that nobody listens on.
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


@pytest.fixture
def deaf() -> Iterator[Celery]:
    """An app whose broker is away."""
    with publisher(NOWHERE) as app:
        app.conf.broker_transport_options = {"socket_connect_timeout": 1}
        app.conf.broker_connection_max_retries = 0
        yield app


def look_up_of(run_id: str, key: str = KEY) -> tuple[str, str]:
    return "recovery.reconcile", repr({"run_id": run_id, "key": key})


def swept(app: Celery) -> Swept:
    found = sweep_once(app)
    assert found is not None
    return found


def in_the_air(journal: Journal, promise: Any = None) -> str:
    """A run whose step has sent something and fallen silent; nobody has noticed yet."""
    journal.freeze()
    claimed = at_work()
    send(claimed, asking(promise=promise) if promise else asking())
    journal.advance(31)
    return claimed.run_id


def test_a_lost_steps_effect_is_asked_for_before_anything_is_repeated(
    journal: Journal, app: Celery
) -> None:
    run_id = in_the_air(journal)
    assert swept(app) == Swept(expired=1, doubted=1, asked=1)
    assert sent(app) == [look_up_of(run_id)]
    assert journal.live(run_id)["state"] == "unknown"
    assert journal.run(run_id)["state"] == "running"
    assert swept(app) == Swept()


def test_when_it_is_found_the_step_runs_again_over_its_result(
    journal: Journal, app: Celery
) -> None:
    run_id = in_the_air(journal)
    swept(app)
    VERBS["found"](begun())
    assert swept(app) == Swept(requeued=1, published=1)
    assert sent(app)[-1][0] == "toy.work"
    assert journal.events(run_id) == [
        "lease_expired", "effect_unknown", "effect_settled", "step_requeued",
    ]  # fmt: skip


def test_a_key_that_is_still_honoured_is_sent_again_without_a_look_but_later_each_time(
    journal: Journal, app: Celery
) -> None:
    run_id = in_the_air(journal, IDEMPOTENT)
    put(journal, sends=4)
    assert swept(app) == Swept(expired=1, requeued=1)
    live = journal.live(run_id)
    assert (live["due_at"] - journal.one("SELECT onward_now()")).total_seconds() == 4.0
    assert (effect(journal)["state"], sent(app)) == ("intended", [])


def test_a_forgotten_key_is_looked_up(journal: Journal, app: Celery) -> None:
    run_id = in_the_air(journal, IDEMPOTENT)
    journal.advance(3600)
    assert swept(app) == Swept(expired=1, doubted=1, asked=1)
    assert sent(app) == [look_up_of(run_id)]


def test_the_fast_path_asks_at_once(journal: Journal, app: Celery) -> None:
    claimed = in_doubt(journal, keys=(KEY, OTHER))
    other = in_doubt(journal, keys=("run:b:registry.file:1",))
    assert sweep.recover_run(app, claimed.run_id) == Swept(asked=2)
    assert sorted(sent(app)) == sorted(
        [look_up_of(claimed.run_id), look_up_of(claimed.run_id, OTHER)]
    )
    assert journal.live(other.run_id)["revision"] == 2, "another run is left to its own"


def test_the_wake_sends_what_is_due_and_a_lost_message_again(journal: Journal, app: Celery) -> None:
    claimed = in_doubt(journal)
    assert [wake.wake_once(app), wake.wake_once(app)] == [1, 0]
    journal.advance(settings().publish_grace)
    assert wake.wake_once(app) == 1
    assert sent(app) == 2 * [look_up_of(claimed.run_id)]


def test_a_look_that_is_to_be_repeated_is_sent_when_it_is_due(
    journal: Journal, app: Celery
) -> None:
    in_doubt(journal)
    wake.wake_once(app)
    lookups.look_again(begun(), after=90.0, counts=False, said="not yet")
    journal.advance(89.0)
    assert wake.wake_once(app) == 0
    journal.advance(1.0)
    assert wake.wake_once(app) == 1


def test_what_cannot_be_sent_is_only_logged_and_due_again_at_once(
    journal: Journal, app: Celery, deaf: Celery
) -> None:
    claimed = in_doubt(journal)
    assert wake.publish_lookups(deaf) == 0
    journal.advance(settings().wake_period)
    assert wake.publish_lookups(app) == 1
    assert sent(app) == [look_up_of(claimed.run_id)]


def test_what_went_unnoticed_is_decided_again_after_a_while(journal: Journal, app: Celery) -> None:
    """Nobody woke the step when its effect was resolved: the sweep comes back to it."""
    run_id = in_the_air(journal)
    swept(app)
    journal.look.execute("DELETE FROM effect")
    assert swept(app) == Swept()
    journal.advance(RECONCILING)
    assert swept(app) == Swept(requeued=1, published=1)
    assert journal.live(run_id)["state"] == "pending"


def test_a_person_is_asked_once_and_the_sweep_leaves_the_step_alone(
    journal: Journal, app: Celery
) -> None:
    run_id = in_the_air(journal)
    swept(app)
    VERBS["ask person"](begun())
    journal.advance(3600)
    before = journal.image()
    assert swept(app) == Swept()
    assert journal.image() == before
    assert journal.run(run_id)["reason"] == "unknown_effect"


def test_and_so_it_does_when_its_run_is_cancelled_meanwhile(journal: Journal, app: Celery) -> None:
    run_id = in_the_air(journal)
    swept(app)
    VERBS["ask person"](begun())
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    journal.advance(3600)
    before = journal.live(run_id)
    assert swept(app) == Swept()
    assert journal.live(run_id) == before


def test_a_cancelled_step_is_reconciled_first_and_its_effect_stays_listed(
    journal: Journal, app: Celery
) -> None:
    """C11: not left running, not marked as never happened, and found for whoever compensates."""
    run_id = in_the_air(journal)
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    assert swept(app) == Swept(expired=1, doubted=1, asked=1)
    assert journal.run(run_id)["state"] == "running"
    VERBS["found"](begun())
    assert swept(app) == Swept(cancelled=1, settled=1)
    assert journal.run(run_id)["state"] == "cancelled"
    assert journal.states(run_id) == {"a": "cancelled", "b": "not_reached"}
    found = journal.rows("SELECT state, result FROM effects WHERE run_id = %s", run_id)
    assert found == [{"state": "settled", "result": '"filed"'}]


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_so_is_one_that_was_waiting_to_be_tried_again(
    journal: Journal, app: Celery, state: str
) -> None:
    run_id = in_the_air(journal, IDEMPOTENT)
    swept(app)
    journal.make(run_id, state=state)
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    assert swept(app) == Swept(doubted=1, asked=1)
    assert journal.run(run_id)["state"] == "running"
    VERBS["believe absent"](begun())
    assert swept(app) == Swept(cancelled=1, settled=1)


def test_what_a_finished_step_left_behind_is_asked_for(journal: Journal, app: Celery) -> None:
    run_id = in_the_air(journal, IDEMPOTENT)
    swept(app)
    Worker().complete(Worker().take(run_id, "a"))
    assert swept(app) == Swept(doubted=1, asked=1)
    VERBS["found"](begun())
    assert journal.events(run_id)[-1] == "effect_not_asked_again"


def test_a_late_answer_after_a_person_was_asked_is_looked_at(journal: Journal, app: Celery) -> None:
    claimed = in_doubt(journal)
    VERBS["ask person"](begun())
    effects.keep_evidence(KEY, claimed, result='"late"')
    assert swept(app) == Swept(asked=1)
    assert sent(app) == [look_up_of(claimed.run_id)]


def test_what_is_being_undone_is_sent_on(journal: Journal, app: Celery) -> None:
    claimed = in_doubt(journal)
    VERBS["found"](begun())
    journal.make(claimed.run_id, state="failed")
    journal.look.execute(
        "UPDATE run SET hold = 'compensate', state = 'compensating' WHERE run_id = %s",
        (claimed.run_id,),
    )
    journal.look.execute(
        "INSERT INTO compensation (run_id, state, requested_by, queue, run_state)"
        " VALUES (%s, 'undoing', 'ada', %s, 'failed')",
        (claimed.run_id, QUEUE),
    )
    assert wake.wake_once(app) == 1
    assert sent(app) == [("recovery.compensate", repr({"run_id": claimed.run_id}))]
