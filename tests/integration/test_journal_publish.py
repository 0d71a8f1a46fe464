"""Which steps get a message and when: windows, priorities, fairness, back-off; places under a limit."""

from typing import Any

import pytest

from models.journal import publish, steps, submitting
from models.settings import settings
from tasks import group
from tests.support.journal import Journal, Worker, at, row_of, submit, submit_run
from tests.support.threads import aside, at_once


def due(journal: Journal, *run_ids: str) -> None:
    """Make messages of these runs missing."""
    for run_id in run_ids:
        journal.make(run_id, publications=0, publish_at="2000-01-01Z")


def taken(limit: int = 100) -> list[str]:
    return [wakeup.run_id for wakeup in publish.take_due(limit=limit)]


def limit(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    monkeypatch.setenv(f"ONWARD_{name}", str(value))
    settings.cache_clear()


def test_a_row_is_handed_out_once_and_again_with_back_off(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "PUBLISH_GRACE", 10)
    limit(monkeypatch, "PUBLISH_BACKOFF_MAX", 60)
    journal.freeze()
    run_id = submit_run(row_of("a"))
    assert taken() == []
    for waited in (10, 20, 40, 60, 60):
        journal.advance(waited - 0.5)
        assert taken() == [], waited
        journal.advance(0.5)
        assert taken() == [run_id], waited
        assert taken() == [], waited
    assert journal.live(run_id)["publications"] == 6


def test_a_hand_out_says_where_to_go_on(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    worker.retry(worker.take(run_id, "a"))
    before = journal.live(run_id)["revision"]
    (wakeup,) = publish.take_due(limit=10)
    assert (wakeup.run_id, wakeup.branch, wakeup.step_key) == (run_id, "0", "a")
    assert (wakeup.step_name, wakeup.queue, wakeup.attempt) == ("toy.work", "steps.toy@1", 2)
    assert journal.live(run_id)["revision"] == before + 1


@pytest.mark.parametrize(
    "values",
    [
        {"state": "running", "owner": "x.y", "lease_expires_at": "9999-01-01Z"},
        {"state": "waiting"},
        {"state": "unknown"},
        {"state": "failed"},
        {"missing": 1},
        {"due_at": "9999-01-01Z"},
        {"publish_at": "9999-01-01Z"},
    ],
    ids=lambda values: next(iter(values)) + str(next(iter(values.values()))),
)
def test_only_what_can_be_claimed_is_handed_out(journal: Journal, values: dict[str, Any]) -> None:
    run_id = submit_run(row_of("a"))
    submit_run(row_of("a"))  # keeps the queue among those with room
    journal.make(run_id, publish_at="2000-01-01Z")
    journal.make(run_id, **values)
    before = journal.image()
    assert taken() == []
    assert journal.image() == before


@pytest.mark.parametrize("hold", ["cancel", "failed"])
def test_a_held_run_gets_no_message(journal: Journal, hold: str) -> None:
    due(journal, submit_run(row_of("a")))
    journal.look.execute("UPDATE run SET hold = %s", (hold,))
    assert taken() == []


def test_priority_comes_first_then_how_long_it_has_been_due(journal: Journal) -> None:
    low, high, older = (submit_run(row_of("a"), priority=p) for p in (0, 5, 5))
    due(journal, low, high, older)
    journal.make(high, due_at="2020-01-02Z")
    journal.make(older, due_at="2020-01-01Z", publish_at="2020-01-03Z")
    assert taken() == [older, high, low]


def test_runs_that_have_begun_go_before_a_backlog_of_new_ones(journal: Journal) -> None:
    new = [submit_run(row_of("a")) for _ in range(3)]
    further, retried = submit_run(row_of("a", "b")), submit_run(row_of("a"))
    Worker().do(further, "a")
    Worker().retry(Worker().take(retried, "a"))
    due(journal, *new, further, retried)
    assert taken() == [further, retried, *new]


def test_batches_take_turns_however_large_they_are(journal: Journal) -> None:
    submitting.create_batch("large", "")
    submitting.create_batch("small", "")
    large = [submit_run(row_of("a"), batch_id="large") for _ in range(6)]
    small = [submit_run(row_of("a"), batch_id="small") for _ in range(2)]
    due(journal, *large, *small)
    first = taken(limit=4)
    assert len({*first} & {*small}) == 2
    assert taken(limit=4) == large[2:6]


def test_one_runs_rows_can_be_asked_for(journal: Journal) -> None:
    one, other = submit_run(row_of("a")), submit_run(row_of("a"))
    due(journal, one, other)
    assert [w.run_id for w in publish.take_due(limit=9, run_id=other)] == [other]
    assert taken() == [one]


def test_a_queue_gets_no_more_than_its_window(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "PUBLISH_WINDOW", 3)
    journal.freeze()
    out = [submit_run(row_of("a")) for _ in range(2)]
    late = [submit_run(row_of("a")) for _ in range(4)]
    elsewhere = submit_run(at("a", queue="other"))
    due(journal, *late, elsewhere)
    assert sorted(taken()) == sorted([late[0], elsewhere])
    assert taken() == []
    Worker().take(out[0], "a")
    assert taken() == [late[1]]
    journal.advance(settings().publish_grace)
    assert len({*taken()} - {elsewhere}) == 3


def test_submissions_beyond_the_window_wait_for_wake(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "PUBLISH_WINDOW", 2)
    sent = [len(submit(row_of("a")).wakeups) for _ in range(4)]
    assert sent == [1, 1, 0, 0]
    assert len(submit(at("a", queue="other")).wakeups) == 1


def test_a_run_that_begins_with_a_wide_group_keeps_to_the_window(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "PUBLISH_WINDOW", 5)
    submit(row_of("a"))
    submitted = submit(group(*(at(f"m{n}") for n in range(9))) | at("end"))
    assert [w.step_key for w in submitted.wakeups] == ["m0", "m1", "m2", "m3"]
    assert len(journal.branches(submitted.run_id)) == 10
    (sent,) = journal.rows("SELECT sum(publications) AS sum FROM live")
    assert sent["sum"] == 5


def test_two_publishers_never_share_a_row_nor_wait_for_each_other(journal: Journal) -> None:
    run_ids = [submit_run(row_of("a")) for _ in range(40)]
    due(journal, *run_ids)
    with (
        journal.holding("SELECT 1 FROM live WHERE run_id = %s FOR UPDATE", run_ids[7]),
        aside(lambda: at_once(taken, taken, taken)) as hands,
    ):
        found = [run_id for hand in hands.result() for run_id in hand]
    assert sorted(found) == sorted({*run_ids} - {run_ids[7]})
    assert taken() == [run_ids[7]]


def test_what_one_publisher_took_a_moment_ago_is_not_taken_again(journal: Journal) -> None:
    for _ in range(400):
        submit_run(row_of("a"))
    journal.look.execute("UPDATE live SET publications = 0, publish_at = '2000-01-01Z'")

    def take_all() -> list[str]:
        return [run_id for part in iter(lambda: taken(limit=10), []) for run_id in part]

    found = [run_id for hand in at_once(take_all, take_all, take_all) for run_id in hand]
    assert len(found) == len({*found}) == 400


def test_duplicates_are_counted(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    publish.count_duplicate(run_id)
    publish.count_duplicate(run_id)
    assert journal.run(run_id)["duplicates"] == 2


def slot(run_id: str, per_second: float = 2.0, throttle: str = "toy.paced") -> float:
    return steps.take_slot(run_id, "0", "a", throttle=throttle, per_second=per_second)


def test_places_are_evenly_spaced_over_the_cluster(journal: Journal) -> None:
    journal.freeze()
    run_ids = [submit_run(row_of("a")) for _ in range(6)]
    waits = at_once(*(lambda run_id=run_id: slot(run_id) for run_id in run_ids))
    assert sorted(waits) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_a_place_is_kept_until_its_time_has_come(journal: Journal) -> None:
    journal.freeze()
    first, second = submit_run(row_of("a")), submit_run(row_of("a"))
    assert slot(first) == 0.0
    Worker().take(first, "a")
    assert slot(second) == slot(second) == 0.5
    live = journal.live(second)
    assert (live["state"], live["attempt"], live["publications"]) == ("pending", 0, 0)
    assert live["publish_at"] == live["due_at"] == live["slot_at"]
    assert Worker().claim(second, "a") is None
    journal.advance(0.5)
    assert taken() == [second]
    assert slot(second) == 0.0
    assert Worker().take(second, "a").attempt == 1
    assert journal.live(second)["slot_at"] is None


def test_a_limit_unused_for_long_saves_no_places(journal: Journal) -> None:
    journal.freeze()
    run_ids = [submit_run(row_of("a")) for _ in range(3)]
    assert slot(run_ids[0]) == 0.0
    journal.advance(100)
    assert [slot(run_id) for run_id in run_ids[1:]] == [0.0, 0.5]


def test_limits_of_other_names_are_apart(journal: Journal) -> None:
    journal.freeze()
    one, other = submit_run(row_of("a")), submit_run(row_of("a"))
    assert (slot(one), slot(other, throttle="toy.other")) == (0.0, 0.0)


def test_a_step_that_cannot_run_takes_no_place(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    claimed = Worker().take(run_id, "a")
    before = journal.image()
    assert slot(run_id) == 0.0
    assert steps.take_slot(run_id, "0", "b", throttle="t", per_second=1) == 0.0
    assert journal.image() == before
    Worker().complete(claimed)


def test_a_place_does_not_bring_a_retry_forward(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    Worker().retry(Worker().take(run_id, "a"), delay=60)
    due_at = journal.live(run_id)["due_at"]
    slot(run_id)
    assert journal.live(run_id)["due_at"] == due_at
