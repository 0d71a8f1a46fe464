"""The demo itself, on a few documents."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ROOT, wait_gone
from tests.support.waiting import wait_until

DOCUMENTS = 8


def demo(home: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ops.demo", "--json", "--documents", str(DOCUMENTS), *options],
        cwd=ROOT,
        env={**os.environ, "ONWARD_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def verdict(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def test_contracts_are_reviewed_while_processes_are_killed(tmp_path: Path) -> None:
    found = verdict(
        demo(tmp_path, "--seed", "7", "--faults", "child_sigkill,worker_sigkill_returns")
    )
    assert found["completed"] == found["filings"] == found["documents"] == DOCUMENTS
    assert found["duplicate_filings"] == found["results_changed"] == 0
    assert found["llm_calls"] >= found["llm_calls_minimum"] == 3 * DOCUMENTS
    assert found["steps_executed"] - found["steps_minimum"] <= found["leases_held_at_kills"]
    recovered = {fault["kind"]: fault["recovered_by"] for fault in found["faults"]}
    assert recovered["child_sigkill"] == "child fast path"
    assert set(recovered) == {"child_sigkill", "worker_sigkill_returns"}
    assert all(fault["seconds"] > 0 for fault in found["faults"])


@pytest.mark.timeout(240)
def test_a_killed_demo_leaves_no_process_and_is_gone_on_with(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with demo(tmp_path, "--no-kills") as first:
        wait_until(lambda: worker_pids(state), timeout=60, what="the workers run")
        wait_until(lambda: calls(tmp_path), timeout=60, what="the model server was asked")
        pids = [one["pid"] for one in json.loads(state.read_text())["processes"].values()]
        first.kill()
    wait_gone(pids, timeout=60)
    found = verdict(demo(tmp_path))
    assert found["completed"] == found["filings"] == DOCUMENTS
    assert found["duplicate_filings"] == 0
    assert found["faults"] == [], "the batch was begun without kills"


def worker_pids(state: Path) -> bool:
    return state.exists() and "worker-3" in json.loads(state.read_text())["processes"]


def calls(home: Path) -> bool:
    return any(file.stat().st_size for file in home.glob("outside/*/model/calls.jsonl"))
