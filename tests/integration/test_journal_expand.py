"""``Then``: a step's result and the steps it asks for are one commit, whoever else grows the plan."""

import pytest

from models.journal import steps
from models.journal.errors import LeaseLost
from models.settings import settings
from tasks import group
from tasks.errors import PlanCircle, PlanTooLong
from tests.support.journal import Journal, Worker, at, blind, row_of, submit_run, work
from tests.support.threads import aside, at_once


def test_new_steps_stand_between_the_step_and_what_followed_it(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    (wakeup,) = worker.then(
        worker.take(run_id, "a"), at("x", blind, queue="other") | at("y"), '"of a"'
    ).wakeups
    assert (wakeup.branch, wakeup.step_key, wakeup.queue) == ("0", "x", "other.toy@1")
    live = journal.live(run_id)
    assert (live["step_key"], live["prev_key"], live["untracked"]) == ("x", "a", True)
    assert journal.run(run_id)["step_count"] == 4
    planned = journal.rows("SELECT step_key, position, inserted_by FROM plan ORDER BY position")
    assert [tuple(row.values()) for row in planned] == [
        ("a", 0, None), ("b", 1, None), ("x", 2, "a"), ("y", 3, "a"),
    ]  # fmt: skip

    first = worker.take(run_id, "x")
    assert first.piped == '"of a"'
    worker.complete(first, '"of x"')
    worker.do(run_id, "y")
    last = worker.take(run_id, "b")
    assert last.piped == '"y"'
    assert worker.complete(last).finished


def test_repeated_names_are_counted_on(journal: Journal) -> None:
    run_id = submit_run(work.s())
    worker = Worker()
    worker.then(worker.take(run_id, "work"), work.s() | work.s())
    worker.then(worker.take(run_id, "work#2"), group(work.s(), work.s()))
    assert set(journal.states(run_id)) == {
        "work", "work#2", "work#3", "work#4", "work#5", "gather",
    }  # fmt: skip
    for number in range(10):
        branch = "0" if number > 1 else f"0/work#2.1.{number}"
        if number == 2:
            worker.do(run_id, "gather")
            worker.then(worker.take(run_id, "work#3"), work.s())
        elif number > 2:
            key = f"work#{3 + number}"
            worker.then(worker.take(run_id, key), work.s())
        else:
            worker.do(run_id, f"work#{4 + number}", branch=branch)
    assert journal.live(run_id)["step_key"] == "work#13"


def test_a_growing_member_still_ends_in_its_own_join(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.then(worker.take(run_id, "m1", "0/1.1"), at("x"))
    worker.do(run_id, "m0", branch="0/1.0")
    assert journal.live(run_id)["missing"] == 1
    assert len(worker.do(run_id, "x", branch="0/1.1").wakeups) == 1
    gathered = steps.gathered(worker.take(run_id, "join"))
    assert gathered == [("completed", '"m0"'), ("completed", '"x"')]


def test_the_last_step_may_open_a_group(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    completed = worker.then(worker.take(run_id, "a"), group(at("x"), at("y")) | at("join"))
    assert [wakeup.step_key for wakeup in completed.wakeups] == ["x", "y"]
    for wakeup in completed.wakeups:
        worker.do(run_id, wakeup.step_key, branch=wakeup.branch)
    assert worker.do(run_id, "join").finished


def test_a_circle_leaves_everything_as_it_was(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    before = journal.image()
    with pytest.raises(PlanCircle, match="already has"):
        worker.then(claimed, at("x") | at("b"))
    assert journal.image() == before
    worker.then(claimed, at("x"))


def test_the_limit_counts_what_the_run_has(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_PLAN_LIMIT", "4")
    settings.cache_clear()
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    worker.then(worker.take(run_id, "a"), at("x"))
    claimed = worker.take(run_id, "x")
    before = journal.image()
    with pytest.raises(PlanTooLong, match="5 steps or more"):
        worker.then(claimed, row_of("y", "z"))
    assert journal.image() == before
    worker.then(claimed, at("y"))
    assert journal.run(run_id)["step_count"] == 4


def test_a_displaced_owner_adds_nothing(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    late = Worker().take(run_id, "a")
    journal.lose()
    before = journal.image()
    with pytest.raises(LeaseLost):
        Worker().then(late, at("x"))
    assert journal.image() == before


def test_branches_that_grow_at_once_take_turns(journal: Journal) -> None:
    width = 6
    run_id = submit_run(group(*(at(f"m{n}") for n in range(width))) | at("join"))
    worker = Worker()
    claims = [worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(width)]
    at_once(*(lambda one=one: worker.then(one, work.s() | work.s()) for one in claims))
    added = {key for key in journal.states(run_id) if key.startswith("work")}
    assert added == {"work", *(f"work#{n}" for n in range(2, 2 * width + 1))}
    positions = [row["position"] for row in journal.rows("SELECT position FROM plan")]
    assert sorted(positions) == list(range(3 * width + 1))
    assert journal.run(run_id)["step_count"] == 3 * width + 1


def test_a_growing_branch_waits_for_the_one_before_it(journal: Journal) -> None:
    run_id = submit_run(group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    first, second = (worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(2))
    with (
        journal.holding("SELECT 1 FROM run WHERE run_id = %s FOR UPDATE", run_id) as earlier,
        aside(lambda: worker.then(first, work.s())) as growing,
    ):
        earlier.wait_for(1)
        assert "work" not in journal.states(run_id)
        earlier.release()
        growing.result()
    worker.then(second, work.s())
    assert {"work", "work#2"} < set(journal.states(run_id))
