"""Failpoints: free when none is armed, refused when misspelt, fired once over all processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from models import failpoints
from models.failpoints import Armed, FailPoint, parse
from tests.support.programs import ROOT

POINTS = [
    *("P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7"),
    *("S1", "S2", "S4", "S5"),
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
