"""One look-up from begin to end, in this process: what is found, and what a tool's code may do to it."""

from collections.abc import Iterator

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery

from models import failpoints
from models.failpoints import FailPoint
from models.journal import effects, lookups
from models.settings import settings
from tasks.tools import Absent, Found, Undecided
from tests.support.asked_tools import Answer, Filed, doubtful, look, raising
from tests.support.broker import publisher, queued
from tests.support.intents import KEY, effect, put, settlement, stories
from tests.support.journal import Journal


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    Filed.requests = []


# What is found


def test_found_settles_and_the_step_is_sent_at_once(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    look(app, claimed, lambda: Found("filed-7"))
    assert Filed.requests == [({"servers": 1}, KEY)]
    assert (settlement(journal)["result"], settlement(journal)["source"]) == ('"filed-7"', "lookup")
    assert journal.live(claimed.run_id)["state"] == "pending"
    assert queued(app) == 1
    assert journal.events(claimed.run_id)[-2:] == ["effect_settled", "step_requeued"]


def test_a_late_answer_is_read_and_the_world_is_not_asked(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    effects.keep_evidence(KEY, claimed, result='"late-7"')
    look(app, claimed, lambda: Found("filed-7"))
    assert Filed.requests == []
    assert (settlement(journal)["result"], settlement(journal)["source"]) == (
        '"late-7"',
        "late_answer",
    )
    assert journal.live(claimed.run_id)["state"] == "pending"


def test_absence_is_believed_at_the_second_look_when_nothing_can_arrive_any_more(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    told = []
    for looker in range(60):
        look(app, claimed, Absent, looker=f"look-{looker}")
        state = effect(journal)
        told.append(((state["due_at"] - journal.one("SELECT onward_now()")).total_seconds(), state))
        if state["state"] == "absent":
            break
        journal.advance(told[-1][0])
    assert [round(wait) for wait, _ in told[:-1]] == [2, 4, 8, 16, 32, 33, 2]
    assert [row["looks"] for _, row in told] == [0, 0, 0, 0, 0, 0, 1, 2]
    assert journal.live(claimed.run_id)["state"] == "pending"
    assert queued(app) == 1


def test_what_a_tool_cannot_tell_is_a_persons(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    look(app, claimed, lambda: Undecided("it was filed twice: f-1, f-2"))
    assert "filed twice: f-1, f-2" in effect(journal)["person"]
    assert journal.run(claimed.run_id)["reason"] == "unknown_effect"
    assert journal.events(claimed.run_id)[-2:] == ["effect_needs_person", "run_blocked"]


def test_what_is_still_provisioning_is_looked_at_again_when_it_says(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    look(app, claimed, lambda: Undecided("provisioning", again_in=30))
    row = effect(journal)
    assert (row["due_at"] - journal.one("SELECT onward_now()")).total_seconds() == 30
    assert (row["person"], row["looks"], row["failed_checks"]) == (None, 0, 0)
    assert stories(journal, claimed.run_id)[-1][1].startswith("not decided yet: provisioning")


def test_a_result_that_the_tool_could_not_have_given_is_a_persons(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    look(app, claimed, lambda: Found({"id": 7}))
    assert "result of asked.file" in effect(journal)["person"]
    assert journal.run(claimed.run_id)["state"] == "blocked"


def test_a_look_up_may_be_a_coroutine(journal: Journal, app: Celery) -> None:
    async def answer() -> Found[str]:
        return Found("filed-7")

    look(app, doubtful(journal), answer)
    assert settlement(journal)["result"] == '"filed-7"'


def test_a_late_message_asks_nothing(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    look(app, claimed, lambda: Found("filed-7"))
    look(app, claimed, lambda: Found("filed-8"))
    assert len(Filed.requests) == 1
    assert settlement(journal)["result"] == '"filed-7"'


# What a look-up may do to whoever makes it


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (raising(ConnectionError("no route to host")), "no route to host"),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
        (raising(MemoryError()), "MemoryError"),
        (raising(SoftTimeLimitExceeded()), "longer than 60 s"),
        (lambda: None, "it returned None"),
        (lambda: "filed-7", "and not Found(result), Absent() or Undecided(reason)"),
    ],
    ids=["raises", "exits", "interrupts", "no memory", "too long", "nothing", "something else"],
)
def test_it_takes_nobody_down_and_is_made_again_later(
    journal: Journal, app: Celery, answer: Answer, said: str
) -> None:
    claimed = doubtful(journal)
    for failed in range(1, 4):
        look(app, claimed, answer, looker=f"look-{failed}")
        row = effect(journal)
        pause = settings().look_pause * 2 ** (failed - 1)
        waits = (row["due_at"] - journal.one("SELECT onward_now()")).total_seconds()
        assert (row["failed_checks"], row["looker"], waits) == (failed, None, pause)
        assert said in stories(journal, claimed.run_id)[-1][1]
        assert said in journal.live(claimed.run_id)["error"]
        journal.advance(pause)
    look(app, claimed, lambda: Found("filed-7"), looker="look-9")
    assert settlement(journal)["result"] == '"filed-7"'


def test_after_so_many_failures_in_a_row_a_person_is_asked(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOOKUP_FAILURE_LIMIT", "3")
    settings.cache_clear()
    claimed = doubtful(journal)
    for failed in range(3):
        assert effect(journal)["person"] is None
        look(app, claimed, raising(OSError("no route")), looker=f"look-{failed}")
        journal.advance(300.0)
    assert effect(journal)["person"].startswith("its look-up failed 3 times in a row: OSError")
    assert journal.run(claimed.run_id)["state"] == "blocked"


def test_look_ups_that_never_come_back_are_counted_as_well(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOOKUP_FAILURE_LIMIT", "3")
    settings.cache_clear()
    claimed = doubtful(journal)
    for number in range(3):
        assert lookups.begin(KEY, looker=f"gone-{number}") is not None
        journal.advance(settings().lookup_time_limit + lookups.SPARE)
    look(app, claimed, lambda: Found("filed-7"))
    assert Filed.requests == [], "its code does not run again"
    assert effect(journal)["person"].startswith(
        "its look-up failed 3 times in a row: the last of them"
    )


def test_a_tool_that_is_not_loaded_here_says_so(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    put(journal, tool="asked.unknown")
    look(app, claimed, lambda: Found("filed-7"))
    assert effect(journal)["failed_checks"] == 1
    assert "no tool called 'asked.unknown'" in journal.live(claimed.run_id)["error"]
    assert "ONWARD_AGENTS" in stories(journal, claimed.run_id)[-1][1]


def test_a_tool_that_cannot_be_made_here_says_why(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)
    put(journal, tool="asked.unset")
    look(app, claimed, lambda: Found("filed-7"))
    assert (effect(journal)["failed_checks"], Filed.requests) == (1, [])
    assert "ASKED_UNSET_ADDRESS" in journal.live(claimed.run_id)["error"]


def test_a_request_that_cannot_be_read_any_more_is_a_failed_check(
    journal: Journal, app: Celery
) -> None:
    claimed = doubtful(journal)
    put(journal, request='{"servers":"many"}')
    look(app, claimed, lambda: Found("filed-7"))
    assert "servers" in stories(journal, claimed.run_id)[-1][1]
    assert effect(journal)["failed_checks"] == 1


def test_a_process_that_is_told_to_end_has_learned_nothing(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = doubtful(journal)
    monkeypatch.setattr("recovery.asking.terminate_handler_fired", lambda: True)
    with pytest.raises(SystemExit):
        look(app, claimed, raising(SystemExit(-241)))
    row = effect(journal)
    assert (row["looker"], row["failed_checks"], row["state"]) == (None, 0, "unknown")


def test_the_world_is_asked_before_anything_is_written(journal: Journal, app: Celery) -> None:
    """S3 lies between the two, and is told which effect it is about."""
    claimed = doubtful(journal)
    seen: list[tuple[object, ...]] = []

    def choose(point: FailPoint, step_name: str | None, about: str | None) -> None:
        if point is FailPoint.S3:
            seen.append((about, step_name, len(Filed.requests), effect(journal)["state"]))

    failpoints.choose_with(choose)
    try:
        look(app, claimed, lambda: Found("filed-7"))
    finally:
        failpoints.choose_with(None)
    assert seen == [(KEY, None, 1, "unknown")]


def test_a_person_who_is_faster_than_the_look_up_is_right(journal: Journal, app: Celery) -> None:
    claimed = doubtful(journal)

    def answer() -> Absent:
        effects.keep_evidence(KEY, claimed, result='"late-7"')
        return Absent()

    put(journal, looks=1, absent_after="2000-01-01Z")
    look(app, claimed, answer)
    row = effect(journal)
    assert (row["state"], row["looker"], row["failed_checks"]) == ("unknown", None, 0)
    look(app, claimed, Absent, looker="look-2")
    assert settlement(journal)["source"] == "late_answer"
