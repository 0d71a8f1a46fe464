"""What the look-up of an untracked step finds, and what it may do to whoever makes it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from celery import Celery

from models import failpoints
from models.failpoints import FailPoint
from models.journal import runs, untracked
from models.journal.values import Output
from models.settings import settings
from recovery.sweep import Swept, sweep_once
from recovery.verify import verify
from tasks import Context, group, registry
from tasks.tools import Absent, Effect, Found, Tool, Undecided
from tests.support.asked_steps import (
    asked,
    begun,
    deploy,
    die,
    loaded,
    look,
    lost,
    start,
)
from tests.support.broker import publisher, sent
from tests.support.journal import Journal, Worker, at


class Post(Tool[str, str]):
    """Something that a look-up must not do."""

    name, effect = "asked.post-again", Effect.ONCE


@pytest.fixture(autouse=True)
def _loaded() -> Iterator[None]:
    with loaded():
        yield


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


# What is found


def test_found_completes_the_step_as_its_owner_would_have(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, Found({"paris": 2}))
    (given,) = asked
    assert given == (run_id, "deploy", f"{run_id}:deploy:deploy", "paris", 2)
    done = journal.step(run_id, "deploy")
    assert done is not None
    assert (done["state"], done["output"]) == ("completed", '{"paris":2}')
    assert (done["attempt"], done["token"]) == (2, 2), "by whoever looked, who claimed it for that"
    assert verify(run_id) == []
    live = journal.live(run_id)
    assert (live["step_key"], live["state"], live["owner"]) == ("after", "pending", None)
    assert sent(app)[-1][0] == "toy.after"
    assert journal.events(run_id) == ["lease_died", "step_look_begun", "step_looked"]
    Worker().complete(Worker().take(run_id, "after"), '{"paris":2}')
    assert journal.run(run_id)["state"] == "completed"


def test_nobody_sees_it_running_meanwhile(journal: Journal) -> None:
    run_id = lost(journal)
    found = begun(journal, run_id)
    output = Output("1", "digest", "digest")
    with journal.look.transaction():
        journal.look.execute("SELECT 1 FROM live WHERE run_id = %s", (run_id,))
        assert untracked.found(found, output, worker="w", said="done") is not None
    told = journal.rows("SELECT kind FROM event WHERE run_id = %s", run_id)
    assert "step_claimed" not in {row["kind"] for row in told}


def test_found_ends_a_group_member(journal: Journal, app: Celery) -> None:
    journal.freeze()
    members = (deploy.si("paris").set(key="deploy"), at("m1"))
    run_id = start(at("a") | group(*members) | at("join"))
    Worker().do(run_id, "a")
    Worker().take(run_id, "deploy", "0/1.0")
    die(run_id)
    look(journal, app, run_id, Found({"paris": 1}), branch="0/1.0")
    assert journal.live(run_id)["missing"] == 1
    assert journal.branches(run_id) == {"0", "0/1.1"}


def test_found_opens_the_group_behind_it(journal: Journal, app: Celery) -> None:
    canvas = deploy.s("paris").set(key="deploy") | group(at("m0"), at("m1")) | at("join")
    run_id = lost(journal, canvas)
    look(journal, app, run_id, Found({"paris": 1}))
    assert journal.branches(run_id) == {"0", "0/1.0", "0/1.1"}
    assert [task for task, _ in sent(app)] == ["toy.work", "toy.work"]


def test_found_may_be_all_there_is_to_do(journal: Journal, app: Celery) -> None:
    run_id = lost(journal, deploy.s("paris").set(key="deploy"))
    look(journal, app, run_id, Found({"paris": 1}))
    assert journal.run(run_id)["state"] == "completed"
    assert journal.branches(run_id) == set()


def test_absent_lets_it_run_again(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, Absent())
    live = journal.live(run_id)
    assert (live["state"], live["block_reason"]) == ("pending", None)
    assert sent(app)[-1][0] == "toy.deploy"
    assert journal.events(run_id)[-2:] == ["step_looked", "step_requeued"]


def test_a_step_that_kills_its_process_each_time_is_not_run_for_ever(
    journal: Journal, app: Celery
) -> None:
    run_id = lost(journal)
    journal.make(run_id, crashes=settings().crash_limit)
    look(journal, app, run_id, Absent())
    assert journal.run(run_id)["reason"] == "poison_step"
    assert journal.live(run_id)["state"] == "failed"


def test_a_cancelled_step_is_asked_for_first(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    assert sweep_once(app) == Swept(asked=1)
    look(journal, app, run_id, Absent())
    sweep_once(app)
    assert journal.run(run_id)["state"] == "cancelled"
    assert journal.states(run_id)["deploy"] == "cancelled"


def test_a_cancelled_step_that_was_done_stays_done(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    look(journal, app, run_id, Found({"paris": 2}))
    sweep_once(app)
    assert journal.run(run_id)["state"] == "cancelled"
    assert journal.states(run_id) == {"deploy": "completed", "after": "cancelled"}


def test_one_that_a_person_has_to_judge_is_given_up_with_its_run(
    journal: Journal, app: Celery
) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, Undecided("two of them"))
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    assert sweep_once(app) == Swept(cancelled=1, settled=1)


def test_undecided_is_a_persons(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, Undecided("two of them"))
    run = journal.run(run_id)
    assert (run["state"], run["reason"]) == ("blocked", "untracked_step")
    for said in ("'deploy'", "two of them", "onward runs resume"):
        assert said in run["detail"]
    runs.send_back(run_id, by="ada")
    assert Worker().take(run_id, "deploy").attempt == 2


def test_a_result_that_the_step_could_not_have_given_is_a_persons(
    journal: Journal, app: Celery
) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, Found("paris"))
    assert "cannot be used" in journal.run(run_id)["detail"]


def test_not_yet_is_looked_at_again_when_it_says(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, Undecided("rolling out", again_in=40))
    live = journal.live(run_id)
    assert (live["due_at"] - journal.one("SELECT onward_now()")).total_seconds() == 40
    assert "rolling out" in live["error"]
    assert sweep_once(app) == Swept()
    journal.advance(40)
    assert sweep_once(app) == Swept(asked=1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no route"), "no route"),
        (SystemExit(3), "SystemExit: 3"),
        (None, "it returned None"),
    ],
)
def test_it_takes_nobody_down_and_is_asked_again_later(
    journal: Journal, app: Celery, error: BaseException | None, said: str
) -> None:
    def answer(_ctx: Context) -> None:
        if error is not None:
            raise error

    run_id = lost(journal)
    for failed in range(1, 4):
        look(journal, app, run_id, answer)
        live = journal.live(run_id)
        waits = (live["due_at"] - journal.one("SELECT onward_now()")).total_seconds()
        assert waits == settings().look_pause * 2 ** (failed - 1)
        assert said in live["error"]
    look(journal, app, run_id, Undecided("soon", again_in=1), answer)
    live = journal.live(run_id)
    waits = (live["due_at"] - journal.one("SELECT onward_now()")).total_seconds()
    assert waits == settings().look_pause, "an answer in between starts the count anew"


def test_after_so_many_failures_in_a_row_a_person_is_asked(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOOKUP_FAILURE_LIMIT", "3")
    settings.cache_clear()
    run_id = lost(journal)
    look(journal, app, run_id, None, None)
    assert journal.run(run_id)["state"] == "running"
    look(journal, app, run_id, None)
    assert "failed 3 times in a row" in journal.run(run_id)["detail"]


def test_look_ups_that_never_come_back_are_counted_as_well(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOOKUP_FAILURE_LIMIT", "3")
    settings.cache_clear()
    run_id = lost(journal)
    for _ in range(3):
        begun(journal, run_id)
    look(journal, app, run_id, Found({"paris": 2}))
    assert asked == [], "its code does not run again"
    assert journal.run(run_id)["state"] == "blocked"


def test_a_look_up_changes_nothing(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    look(journal, app, run_id, lambda ctx: ctx.call(Post(), "it"))
    assert "only asks what happened" in journal.live(run_id)["error"]


def test_a_step_that_is_not_loaded_here_says_so(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    with registry.isolated():
        look(journal, app, run_id, Found({"paris": 2}))
    assert "no step is called 'toy.deploy'" in journal.live(run_id)["error"]


def test_a_look_up_that_is_gone_from_the_code_leaves_it_to_a_person(
    journal: Journal, app: Celery
) -> None:
    run_id = lost(journal)
    bound = registry.step_named("toy.deploy")
    before = bound.options
    object.__setattr__(bound, "options", replace(before, lookup=None))
    try:
        look(journal, app, run_id, Found({"paris": 2}))
    finally:
        object.__setattr__(bound, "options", before)
    assert "no look-up any more" in journal.run(run_id)["detail"]


def test_the_world_is_asked_before_anything_is_written(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    seen: list[tuple[object, ...]] = []

    def choose(point: FailPoint, step_name: str | None, _about: str | None) -> None:
        if point is FailPoint.S3:
            seen.append((step_name, len(asked), journal.live(run_id)["state"]))

    failpoints.choose_with(choose)
    try:
        look(journal, app, run_id, Found({"paris": 2}))
    finally:
        failpoints.choose_with(None)
    assert seen == [("toy.deploy", 1, "unknown")]
