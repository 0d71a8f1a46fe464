"""``ctx.progress``: whatever a body reports, it is shown or left, and the step goes on."""

from typing import Any

import pytest

from tasks.progress import Progress
from tests.support.journal import Journal, Worker, at, submit_run


@pytest.fixture
def shown(journal: Journal) -> tuple[Journal, str, Progress]:
    run_id = submit_run(at("a"))
    return journal, run_id, Progress(Worker().take(run_id, "a").lease)


def test_odd_notes_are_shown_in_printable_characters(shown: tuple[Journal, str, Progress]) -> None:
    journal, run_id, report = shown
    report(1, 4, "page \x00 \ud800 " + "x" * 5000)
    live = journal.live(run_id)
    assert (live["progress_done"], live["progress_total"]) == (1.0, 4.0)
    assert live["progress_note"].startswith("page \\x00 \\ud800 x")
    assert len(live["progress_note"]) <= 500


@pytest.mark.parametrize("done", ["half", None, object()])
def test_what_is_no_number_is_left_out(shown: tuple[Journal, str, Progress], done: Any) -> None:
    journal, run_id, report = shown
    report(done, None, None)
    assert journal.live(run_id)["progress_done"] is None


def test_a_loop_writes_at_most_once_a_second_and_always_its_end(
    shown: tuple[Journal, str, Progress],
) -> None:
    journal, run_id, report = shown
    before = journal.live(run_id)["revision"]
    for done in range(1000):
        report(done, 1000, None)
    report(1000, 1000, "done")
    live = journal.live(run_id)
    assert (live["progress_done"], live["progress_note"]) == (1000.0, "done")
    assert live["revision"] - before <= 10
