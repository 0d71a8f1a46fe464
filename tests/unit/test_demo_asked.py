"""What becomes of the demo's options when an earlier start left a batch unfinished."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from ops.demo.asked import Asked, refusal
from ops.demo.command import demo_command
from ops.demo.memory import Memory
from ops.demo.schedule import FaultKind
from ops.stack import Home

CHILD, BEAT = FaultKind.CHILD_SIGKILL, FaultKind.BEAT_SIGKILL
KNOWN = Memory.begin(documents=24, seed=7, kinds=(CHILD, BEAT))


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (Asked(), False),
        (Asked(documents=24, seed=7, kills=True, faults=(BEAT, CHILD)), False),
        (Asked(documents=25), True),
        (Asked(seed=8), True),
        (Asked(seed=0), True),
        (Asked(kills=False), True),
        (Asked(faults=(CHILD,)), True),
    ],
)
def test_an_unfinished_batch_is_gone_on_with_unless_another_was_asked_for(
    asked: Asked, other: bool
) -> None:
    assert asked.contradicts(KNOWN) is other


def test_kills_are_not_added_to_a_batch_that_was_begun_without() -> None:
    quiet = replace(KNOWN, kinds=())
    assert Asked(kills=True).contradicts(quiet)
    assert not Asked(kills=False).contradicts(quiet)


def test_what_was_not_said_has_its_default() -> None:
    begun = Asked().begin()
    assert (begun.documents, begun.kinds) == (137, tuple(FaultKind))
    assert Asked(kills=False, faults=(CHILD,)).begin().kinds == ()
    assert Asked(documents=9, seed=0).begin().seed == 0


def test_the_refusal_is_one_sentence_that_says_what_to_do() -> None:
    told = refusal(KNOWN)
    for part in (KNOWN.batch_id, "24 contracts, seed 7", "child_sigkill, beat_sigkill", "--new"):
        assert part in told
    assert "no kills" in refusal(replace(KNOWN, kinds=()))


def test_nothing_is_started_for_a_start_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_HOME", str(tmp_path))
    KNOWN.save(Home.at(tmp_path))
    errors = io.StringIO()
    monkeypatch.setattr("sys.stderr", errors)
    with pytest.raises(typer.Exit) as ended:
        demo_command(seed=8)
    assert ended.value.exit_code == 2
    assert errors.getvalue().count("\n") == 1
    assert KNOWN.batch_id in errors.getvalue()
    assert [file.name for file in tmp_path.iterdir()] == ["demo.json"]
