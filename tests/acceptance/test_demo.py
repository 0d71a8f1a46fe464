"""The demo itself, on a few documents."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ROOT, wait_gone
from tests.support.waiting import wait_until

DOCUMENTS = 8


def demo(home: Path, *options: str, documents: int = DOCUMENTS) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ops.demo", "--json", "--documents", str(documents), *options],
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
def test_an_answer_on_record_is_given_again_and_not_paid_for_twice(tmp_path: Path) -> None:
    found = verdict(demo(tmp_path, "--seed", "7", "--faults", "answered_sigkill"))
    assert found["completed"] == found["filings"] == DOCUMENTS
    assert found["violations"] == []
    (fault,) = found["faults"]
    assert (fault["kind"], fault["steps_lost"]) == ("answered_sigkill", 1)
    assert found["llm_calls"] == found["llm_calls_minimum"] == 3 * DOCUMENTS, (
        "by the server's count"
    )
    assert (found["llm_calls_replayed"], found["llm_calls_asked_again"]) == (1, 0)
    assert 0 < found["tokens_saved"] < found["tokens"]
    assert 0 < float(found["cost_saved"]) < float(found["cost"])


@pytest.mark.timeout(240)
def test_a_lost_answer_is_asked_for_and_not_sent_again(tmp_path: Path) -> None:
    process = demo(tmp_path, "--seed", "7", "--faults", "response_dropped")
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found["completed"] == found["filings"] == DOCUMENTS
    assert (found["responses_dropped"], found["duplicate_filings"]) == (1, 0)
    assert found["look_ups"] >= 1
    (doubt,) = found["unknown_effects"]
    assert (doubt["settled_by"], doubt["sends"]) == ("lookup", 1)
    (fault,) = found["faults"]
    assert (fault["kind"], fault["recovered_by"]) == ("response_dropped", "look-up")
    told = [line for line in err.splitlines() if doubt["run_id"][-6:] in line]
    for words in ("its answer was lost", "the registry was asked", "nothing was sent again"):
        assert any(words in line for line in told), err


@pytest.mark.timeout(240)
def test_every_other_fault_is_overcome(tmp_path: Path) -> None:
    kinds = {
        "worker_sigkill_gone", "worker_sigstop", "beat_sigkill", "valkey_sigkill", "valkey_wiped",
        "postgres_restart",
    }  # fmt: skip
    # This seed hits the broker first: near the end of so small a batch nothing waits in it for long.
    found = verdict(demo(tmp_path, "--seed", "2", "--faults", ",".join(kinds), documents=28))
    assert found["completed"] == found["filings"] == 28
    assert found["failed"] == found["duplicate_filings"] == found["results_changed"] == 0
    assert found["steps_executed"] - found["steps_minimum"] <= found["leases_held_at_kills"]
    assert found["violations"] == []
    faults = {fault["kind"]: fault for fault in found["faults"]}
    assert set(faults) == kinds
    assert "sweep" in faults["worker_sigkill_gone"]["recovered_by"]
    assert "sweep" in faults["worker_sigstop"]["recovered_by"]
    assert faults["worker_sigstop"]["late_results_rejected"] > 0
    assert "beat" in faults["beat_sigkill"]["recovered_by"]
    carried = {"republication", "message kept"}
    for kind in ("valkey_sigkill", "valkey_wiped"):
        assert set(faults[kind]["recovered_by"].split(" and ")) <= carried
    assert faults["postgres_restart"]["seconds"] > 0


@pytest.mark.timeout(240)
def test_a_killed_demo_leaves_no_process_and_is_gone_on_with(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with demo(tmp_path, "--no-kills") as first:
        wait_until(lambda: worker_pids(state), timeout=60, what="the workers run")
        wait_until(lambda: calls(tmp_path), timeout=60, what="the model server was asked")
        pids = [one["pid"] for one in json.loads(state.read_text())["processes"].values()]
        first.kill()
    wait_gone(pids, timeout=60)
    other = demo(tmp_path, "--seed", "7", "--faults", "child_sigkill")
    out, err = other.communicate(timeout=60)
    assert (other.returncode, out) == (2, "")
    assert f"is not finished ({DOCUMENTS} contracts" in err
    assert "--new" in err
    found = verdict(demo(tmp_path))
    assert found["continued"] is True
    assert found["completed"] == found["filings"] == DOCUMENTS
    assert found["duplicate_filings"] == 0
    assert found["faults"] == [], "the batch was begun without kills"


@pytest.mark.timeout(240)
def test_a_demo_that_is_not_to_be_finished_is_dropped(tmp_path: Path) -> None:
    with demo(tmp_path, "--no-kills") as first:
        wait_until(lambda: calls(tmp_path), timeout=60, what="the model server was asked")
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=90) == 130
    (store,) = (tmp_path / "outside").iterdir()
    found = verdict(demo(tmp_path, "--no-kills", "--new", documents=2))
    assert found["continued"] is False
    assert found["completed"] == found["filings"] == found["documents"] == 2
    assert found["llm_calls"] == 6, "the runs of the dropped batch were cancelled"
    assert not store.exists()


def worker_pids(state: Path) -> bool:
    return state.exists() and "worker-3" in json.loads(state.read_text())["processes"]


def calls(home: Path) -> bool:
    return any(file.stat().st_size for file in home.glob("outside/*/model/calls.jsonl"))
