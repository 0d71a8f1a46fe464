"""``onward up``, ``down`` and ``review`` as a newcomer uses them: from an empty directory, with no settings."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.stack import Home
from ops.stack.state import StackState, running
from tests.support.cli import Cli, cli_for
from tests.support.contracts import CHINESE, ENGLISH
from tests.support.programs import wait_gone
from tests.support.waiting import wait_until

HELLO = """
from pydantic import BaseModel
from tasks import Context, Then, group, step, workflow

class Draft(BaseModel):
    text: str
    rounds: int

@step
def words(ctx: Context, topic: str) -> list[str]:
    return topic.split()

@step
def write(ctx: Context, heard: list[list[str]]) -> Draft:
    ctx.log.info("writing about %s", heard[0])
    return Draft(text=" ".join(heard[0] + heard[1]), rounds=1)

@step
def polish(ctx: Context, draft: Draft) -> Draft | Then[Draft]:
    better = Draft(text=draft.text.capitalize(), rounds=draft.rounds + 1)
    return better if better.rounds == 3 else Then(better, polish.s())

@workflow("hello", version="1")
def hello(topic: str):
    return group(words.s(topic), words.s("and so on")) | write.s() | polish.s()
"""


@pytest.fixture
def onward(tmp_path: Path) -> Iterator[Cli]:
    """The command line in a directory of its own; what it left running is stopped, and gone."""
    onward = cli_for(tmp_path)
    yield onward
    state = StackState.read(Home.at(tmp_path / ".onward"))
    onward("down", "--now")
    if state is not None:
        wait_gone([state.pid, *(process.pid for process in state.processes.values())], timeout=30)


def test_a_stack_is_started_used_and_stopped(onward: Cli, tmp_path: Path) -> None:
    (tmp_path / "hello_agent.py").write_text(HELLO)
    words = ("up", "--agents", "hello_agent", "--workers", "1", "--no-flower", "--detach")
    started = onward(*words, "--json", ONWARD_LOG="json").json
    assert started["agents"] == "hello_agent"
    assert started["flower_url"] is None
    assert ":***@127.0.0.1:" in started["database_url"]
    assert {"postgres", "valkey", "control", "worker-1"} <= set(started["pids"])

    given = '{"topic": "hello from a run"}'
    said = onward("submit", "hello", "--input", given, "--key", "first", "--wait", "--json")
    assert said.json["result"] == {"text": "Hello from a run and so on", "rounds": 3}
    assert json.loads(onward("result", "first").out) == said.json["result"]
    steps = onward("steps", "first", "--json").json
    assert [(step["step_key"], step["inserted_by"]) for step in steps[-2:]] == [
        ("polish", None), ("polish#2", "polish"),
    ]  # fmt: skip
    log = (tmp_path / ".onward" / "logs" / "worker-1.log").read_text().splitlines()
    (line,) = [json.loads(line) for line in log if "writing about" in line]
    assert (line["step_key"], line["attempt"], line["level"]) == ("write", 1, "INFO")
    assert line["run_id"] == said.json["run_id"]

    assert "is in use by" in onward(*words).sentence
    scraped = wait_until(
        lambda: scrape(started["metrics_url"]), timeout=30, what="metrics are served"
    )
    assert 'onward_runs{state="completed"} 1.0' in scraped
    shown = onward("metrics", "show", "--json").json["onward_runs"]
    assert shown == [{"labels": {"state": "completed"}, "value": 1.0}]
    assert 'onward_runs{state="completed"} 1.0' in onward("metrics", "show").out.splitlines()

    assert onward("down", "--json").json["stopped"] == "stopped"
    assert onward("down", "--json").json["stopped"] == "not running"
    assert "start one with `onward up`" in onward("runs", "list").sentence


def scrape(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - a loopback address
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def test_ctrl_c_stops_everything(onward: Cli, tmp_path: Path) -> None:
    (tmp_path / "hello_agent.py").write_text(HELLO)
    command, environment = onward.command(
        "up", "--agents", "hello_agent", "--workers", "1", "--beats", "1", "--json"
    )
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        assert Path(answer["flower_password_file"]).read_text()
        state = running(Home.at(tmp_path / ".onward"))
        assert state is not None
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == ""
    wait_gone([one.pid for one in state.processes.values()])


def calls(home: Path) -> int:
    """LLM calls, as the model server counted them."""
    return len((home / "review" / "model" / "calls.jsonl").read_text().splitlines())


def test_own_documents_are_reviewed_each_by_itself_and_only_once(
    onward: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "contracts"
    folder.mkdir()
    (folder / "english.txt").write_text(ENGLISH * 3)
    (folder / "中文.md").write_text(CHINESE * 3)
    (folder / "broken.pdf").write_bytes(b"not a pdf at all")
    (folder / "picture.png").write_bytes(b"x")
    assert "add --yes" in onward("review", str(folder), "--json").err

    said = onward("review", str(folder), "--yes", "--json")
    assert said.code == 1
    assert "3 documents: about 9 LLM calls" in said.err
    answer = json.loads(said.out)
    found = {Path(one["uri"]).suffix: one for one in answer["documents"]}
    assert (answer["completed"], answer["failed"], answer["reused"]) == (2, 1, 0)
    assert found[".pdf"]["state"] == "failed"
    assert "cannot read broken.pdf" in found[".pdf"]["problem"]
    assert found[".txt"]["result"] != found[".md"]["result"]
    assert [Path(one["path"]).name for one in answer["skipped"]] == ["picture.png"]
    made = calls(tmp_path / ".onward")
    assert made >= 6

    (folder / "broken.pdf").unlink()
    (folder / "new.txt").write_text(ENGLISH * 2)
    again = json.loads(onward("review", str(folder), "--yes", "--json").out)
    assert (again["completed"], again["failed"], again["reused"]) == (3, 0, 2)
    by_uri = {one["uri"]: one for one in again["documents"]}
    assert by_uri[found[".txt"]["uri"]]["result"] == found[".txt"]["result"]
    assert 3 <= calls(tmp_path / ".onward") - made < 6


def test_a_review_cut_short_goes_on(onward: Cli, tmp_path: Path) -> None:
    """With a running stack that is used; interrupted, and given again."""
    folder = tmp_path / "contracts"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02}.txt").write_text(f"{ENGLISH}\n\nCopy {number}.\n")
    assert onward("up", "--workers", "1", "--no-flower", "--detach").code == 0
    command, environment = onward.command("review", str(folder), "--yes", "--json")
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        wait_until(
            lambda: onward("runs", "list", "--json").json,
            timeout=30,
            what="the review was submitted",
        )
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    if process.returncode == 130:
        assert "The same command goes on from here" in err
        assert json.loads(out)["completed"] < 12
    whole = onward("review", str(folder), "--yes", "--json").json
    assert (whole["completed"], whole["failed"], len(whole["documents"])) == (12, 0, 12)
    assert len(onward("runs", "list", "--json").json) == 12
