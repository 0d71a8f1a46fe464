"""Failpoints: free when none is armed, refused when misspelt, fired once over all processes."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models import failpoints
from models.failpoints import Armed, FailPoint, parse
from tests.support.programs import ROOT

POINTS = [
    *("P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7"),
    *("E1", "E4", "E5", "E6"),
    *("L1", "L2", "L3", "L4"),
    *("S1", "S2", "S3", "S4", "S5"),
]


def test_there_is_a_point_at_every_boundary() -> None:
    assert list(FailPoint) == POINTS


@pytest.mark.parametrize(
    ("spec", "armed"),
    [
        ("", {}),
        (" , ", {}),
        ("P4:kill", {FailPoint.P4: Armed("kill", None)}),
        ("P4:kill@toy.read", {FailPoint.P4: Armed("kill", "toy.read")}),
        (
            "P4:kill@toy.read, S4:stop",
            {FailPoint.P4: Armed("kill", "toy.read"), FailPoint.S4: Armed("stop", None)},
        ),
    ],
)
def test_points_are_armed_by_name(spec: str, armed: dict[FailPoint, Armed]) -> None:
    assert parse(spec) == armed


@pytest.mark.parametrize("spec", ["P9:kill", "P4", "P4:", "P4:explode", ":kill", "p4:kill"])
def test_what_is_misspelt_is_never_ignored(spec: str) -> None:
    with pytest.raises(ValueError, match=r"ONWARD_FAILPOINTS|is not a valid FailPoint"):
        parse(spec)


def test_nothing_happens_when_none_is_armed() -> None:
    for point in FailPoint:
        failpoints.failpoint(point, "toy.read")
    failpoints.arm_commit("toy.read")
    assert not failpoints.armed_commit()


def test_a_fault_kit_chooses_by_itself_and_an_armed_commit_belongs_to_its_thread() -> None:
    asked: list[tuple[FailPoint, str | None, str | None]] = []

    def choose(point: FailPoint, step_name: str | None, about: str | None) -> str | None:
        asked.append((point, step_name, about))
        return "kill" if point is FailPoint.E5 else None

    failpoints.choose_with(choose)
    try:
        failpoints.failpoint(FailPoint.E1, "toy.pay", "run-1:pay:till:1")
        failpoints.arm_effect_commit("toy.pay", "run-1:pay:till:1")
        with ThreadPoolExecutor() as heartbeat:
            assert not heartbeat.submit(failpoints.armed_commit).result(), (
                "another thread's statement"
            )
        assert failpoints.armed_commit()
        assert not failpoints.armed_commit(), "one statement, and not the next"
    finally:
        failpoints.choose_with(None)
    assert asked == [
        (FailPoint.E1, "toy.pay", "run-1:pay:till:1"), (FailPoint.E5, "toy.pay", "run-1:pay:till:1"),
    ]  # fmt: skip


PASSES = """
import sys
from models.failpoints import FailPoint, failpoint
failpoint(FailPoint(sys.argv[1]), sys.argv[2] or None)
print("passed", flush=True)
"""


def outcome(spec: str, directory: Path, point: str, step: str = "") -> int:
    """The exit code of a process that comes past a point."""
    env = {
        **os.environ,
        "ONWARD_FAILPOINTS": spec,
        "ONWARD_FAILPOINT_DIR": str(directory),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", PASSES, point, step]
    done = subprocess.run(command, env=env, timeout=30, capture_output=True, check=False)
    return done.returncode


def test_a_point_kills_the_first_process_that_comes_past_it(tmp_path: Path) -> None:
    assert outcome("P4:kill", tmp_path, "P4") == -signal.SIGKILL
    assert [marker.name for marker in tmp_path.iterdir()] == ["P4"]
    assert outcome("P4:kill", tmp_path, "P4") == 0


def test_a_point_waits_for_its_own_step(tmp_path: Path) -> None:
    assert outcome("P4:kill@toy.read", tmp_path, "P4", "toy.other") == 0
    assert outcome("P4:kill@toy.read", tmp_path, "P1", "toy.read") == 0
    assert not list(tmp_path.iterdir())
    assert outcome("P4:kill@toy.read", tmp_path, "P4", "toy.read") == -signal.SIGKILL
