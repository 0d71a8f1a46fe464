"""Who may still send what a look-up does not find, and tools of other kinds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from models.journal import effects
from models.journal.effect_values import Sender
from models.journal.values import Claimed
from models.settings import settings
from recovery.reconcile import reconcile
from tasks import processes
from tasks.tools import Absent, Found
from tests.support.asked_tools import Answer, Cancelled, Filed, doubtful, look
from tests.support.broker import publisher
from tests.support.intents import IDEMPOTENT, KEY, asking, at_work, effect, put, settlement, stories
from tests.support.journal import Journal, Worker
from tests.support.looking import declare_rewind

NEVER_OVER = {"call_over": False, "absent_after": "2000-01-01Z"}


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    Filed.requests = []


# Who may still send


@pytest.fixture
def sender() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def sent_by(pid: int, started: int, *, space: str | None = None) -> dict[str, Any]:
    return {
        **NEVER_OVER, "pid": pid, "pid_started": started, "pid_space": space or processes.pid_space(),
    }  # fmt: skip


def believed(app: Celery, journal: Journal, claimed: Claimed) -> bool:
    """Whether two looks that find nothing are enough."""
    for looker in ("look-1", "look-2"):
        put(journal, due_at="2000-01-01Z")
        look(app, claimed, Absent, looker=looker)
    return str(effect(journal)["state"]) == "absent"


def test_a_sender_that_lives_in_this_pid_space_may_still_send(
    journal: Journal, app: Celery, sender: "subprocess.Popen[bytes]"
) -> None:
    claimed = doubtful(journal)
    put(journal, **sent_by(sender.pid, processes.started_at(sender.pid)))
    assert not believed(app, journal, claimed)
    assert "not proven gone" in stories(journal, claimed.run_id)[-1][1]
    assert effect(journal)["looks"] == 0
    sender.kill()
    sender.wait()
    assert believed(app, journal, claimed)


def test_a_pid_that_is_another_process_by_now_is_no_sender(
    journal: Journal, app: Celery, sender: "subprocess.Popen[bytes]"
) -> None:
    claimed = doubtful(journal)
    put(journal, **sent_by(sender.pid, processes.started_at(sender.pid) - 1))
    assert believed(app, journal, claimed)


def test_a_pid_of_another_host_proves_nothing(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    put(journal, **sent_by(2**22 - 1, 1, space="other-boot/other-namespace"))
    assert not believed(app, journal, claimed)
    journal.advance(settings().presume_dead_after)
    assert believed(app, journal, claimed)


def test_what_a_dead_sender_left_running_is_ended_before_the_look(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    mark = f"{claimed.run_id}:{claimed.step_key}:{claimed.token}"
    env = {**os.environ, processes.ATTEMPT_MARKER: mark}
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, env=env) as left:
        put(journal, **sent_by(2**22 - 1, 1))
        look(app, claimed, Absent)
        assert left.wait(timeout=10) == -9


def test_what_is_known_of_one_sender_says_nothing_of_an_earlier_one(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    put(journal, absent_after="2000-01-01Z", call_over=True, earlier_doubt=True)
    assert not believed(app, journal, claimed)


def test_nor_of_those_that_the_journal_has_forgotten(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    journal.advance(500.0)
    declare_rewind(journal)
    put(journal, absent_after="2000-01-01Z", call_over=True)
    assert not believed(app, journal, claimed)
    journal.advance(settings().presume_dead_after)
    assert believed(app, journal, claimed)


# Tools of other kinds


def test_what_can_neither_be_asked_twice_nor_asked_is_a_persons(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    put(journal, tool="asked.post", effect_class="once")
    look(app, claimed, Absent)
    assert (
        effect(journal)["person"] == "its tool can neither be asked twice nor asked what happened"
    )


def test_a_first_send_that_the_journal_may_have_forgotten_is_a_persons_by_its_own_word(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    declare_rewind(journal)
    put(journal, tool="asked.post", effect_class="once")
    look(app, claimed, Absent)
    assert journal.run(claimed.run_id)["reason"] == "journal_rewound"


def test_a_key_that_is_forgotten_is_looked_up_or_a_persons(journal: Journal, app: Celery) -> None:
    for tool in ("asked.file", "asked.post"):
        claimed = doubtful(journal, IDEMPOTENT)
        journal.advance(3600.0)
        put(journal, tool=tool)
        look(app, claimed, lambda: Found("filed-7"))
        if tool == "asked.file":
            assert settlement(journal)["source"] == "lookup"
            with journal.look.transaction():
                journal.look.execute("SET LOCAL onward.retention = 'on'")
                journal.look.execute("DELETE FROM effect_settlement")
        else:
            assert "its key may be forgotten" in effect(journal)["person"]


def test_what_a_look_up_may_still_miss_is_no_persons_yet(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    put(journal, tool="asked.lagging", absent_after=None)
    look(app, claimed, Absent)
    assert effect(journal)["person"] is None
    journal.advance(50.0)
    look(app, claimed, Absent, looker="look-2")
    assert "max_request_lifetime" in effect(journal)["person"]


@pytest.mark.parametrize(
    ("answer", "state"),
    [(lambda: Found(None), None), (Absent, "unknown"), (lambda: Found({1}), None)],
)
def test_an_undo_is_asked_for_with_what_it_undoes(
    journal: Journal, app: Celery, answer: Answer, state: str | None
) -> None:
    journal.freeze()
    claimed = at_work()
    sender = Sender("start-1", "worker-1", 4242, 4243, "host:1")
    effects.intend(asking(), claimed, sender)
    effects.settle(KEY, claimed, result='"filed"')
    undo = asking(f"{KEY}:undo", tool="asked.cancelled")
    effects.intend(undo, claimed, sender)
    effects.doubt(undo.key, claimed, error="no answer", call_over=True)
    put(journal, key=undo.key, undoes=KEY)
    Worker().interrupt(claimed)
    Cancelled.answer = staticmethod(answer)
    reconcile(app, claimed.run_id, undo.key, looker="look-1")
    found = journal.rows("SELECT state, person FROM effects WHERE key = %s", undo.key)
    assert found[0]["state"] == (state or "settled") or "cannot be used" in found[0]["person"]
