"""The README is true: its commands run, its agent runs, its diagram is the table."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from models.states import mermaid
from ops.stack.process import Program
from ops.stack.supervisor import Supervisor
from tasks import Context
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

#: Commands that need what no test has; the README says so beside them.
NEED_A_CONTAINER_ENGINE = re.compile(r"(COMPOSE_PROFILES=\w+ )?docker compose")
#: The one is executed by test_clean_clone, in a clone of its own; the other, by whoever runs this test.
MAKE = re.compile(r"make (demo|test)$")
CELERY = re.compile(r"celery -A tasks (worker|beat)\b")

BROKEN_AGENT = """
from tasks import Context, step, workflow

@step
def give_up(ctx: Context, why: str) -> str:
    raise RuntimeError(why)

@workflow("broken", version="1")
def broken(why: str):
    return give_up.s(why)
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Every command of every shell block, without its comment."""
    lines = [line.split(" #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


class Shell:
    """A newcomer's terminal: a directory with his agents, and the commands of the README."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "ONWARD_HOME": str(directory / "home"),
            "PYTHONPATH": str(directory),
        }

    def exporting(self, **variables: str) -> "Shell":
        """The same terminal after ``export`` of these."""
        other = Shell(self.directory)
        other.environment |= variables
        return other

    def run(self, command: str, *, timeout: float = 90) -> str:
        """Run one command and return what it printed; its failure is the test's."""
        done = self._run(command, timeout)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def succeeds(self, command: str) -> bool:
        return self._run(command, 30).returncode == 0

    def _run(self, command: str, timeout: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            shlex.split(command), cwd=self.directory, env=self.environment, capture_output=True,
            text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("newcomer")
    (agent,) = [block for block in blocks("python") if block.startswith("# file: hello_agent.py")]
    (directory / "hello_agent.py").write_text(agent)
    (directory / "broken_agent.py").write_text(BROKEN_AGENT)
    made = Shell(directory)
    yield made
    subprocess.run(
        ["onward", "down"], cwd=directory, env=made.environment, capture_output=True, check=False
    )


def test_every_command_is_executed_by_a_test_or_says_why_not() -> None:
    known = [*first_agent(), *operating(), *own_servers()]
    for command in commands():
        assert (
            command in known
            or command.startswith("export FLOWER_BASIC_AUTH=")  # for the containers below it
            or NEED_A_CONTAINER_ENGINE.match(command)
            or MAKE.match(command)
        ), f"no test executes: {command}"


def first_agent() -> list[str]:
    """The commands under the first agent, in order."""
    (block,) = [block for block in blocks("sh") if "--agents hello_agent" in block]
    return [line.split(" #")[0].strip() for line in block.splitlines() if line]


def operating() -> list[str]:
    """What an operator types."""
    (block,) = [block for block in blocks("sh") if "onward runs show RUN" in block]
    return [line.split(" #")[0].strip() for line in block.splitlines() if line]


@pytest.mark.timeout(240)
def test_the_first_agent_and_the_operators_commands_run(shell: Shell) -> None:
    up, *rest, down = first_agent()
    assert down == "onward down"
    shell.run(up.replace("--agents hello_agent", "--agents hello_agent,broken_agent"))
    try:
        printed = [shell.run(command) for command in rest]
        result = json.loads(printed[1])
        assert result == {"text": "Hello from a run and so on", "rounds": 3}
        assert "completed" in printed[2]
        failed = json.loads(
            shell.run(
                'onward submit broken --input \'{"why": "no ink"}\' --key b1 --batch b --json'
            )
        )["run_id"]
        wait_until(
            lambda: "failed" in shell.run(f"onward runs show {failed}"),
            timeout=30,
            what="the broken run has failed",
        )
        for command in operating():
            told = command.replace("RUN", failed).replace("BATCH", "b")
            shell.run(told + (" --yes" if re.search(r"resume|retry-failed", told) else ""))
    finally:
        shell.run(down)


def own_servers() -> list[str]:
    """The commands for those who bring servers, in order."""
    (block,) = [block for block in blocks("sh") if "export ONWARD_DATABASE_URL=" in block]
    return [line.split(" #")[0].strip() for line in block.splitlines() if line]


def test_ones_own_postgres_and_broker(
    empty_database_url: str, broker_url: str, tmp_path: Path, shell: Shell
) -> None:
    lines = own_servers()
    own = shell.exporting(
        ONWARD_DATABASE_URL=empty_database_url, ONWARD_BROKER_URL=broker_url,
        ONWARD_AGENTS="hello_agent", ONWARD_HOME=str(tmp_path / "not-used"),
    )  # fmt: skip
    exports = {line.split()[1].partition("=")[0] for line in lines if line.startswith("export ")}
    assert exports == {"ONWARD_DATABASE_URL", "ONWARD_BROKER_URL", "ONWARD_AGENTS"}
    first, *services, last = [line for line in lines if not line.startswith("export ")]
    own.run(first)
    with started(services, own.environment, tmp_path):
        send_from_elsewhere(broker_url)
        wait_until(
            lambda: "completed" in own.run("onward runs list"),
            timeout=60,
            what="the run that was sent is completed",
        )
        wait_until(lambda: own.succeeds("onward health"), timeout=60, what="a sweep is complete")
        own.run(last)
    assert json.loads(own.run("onward result order-17"))["rounds"] == 3


@contextmanager
def started(
    commands: list[str], environment: Mapping[str, str], directory: Path
) -> Iterator[Supervisor]:
    """Every command as a process, once each says that it is ready."""
    supervisor = Supervisor()
    logs = {command: directory / f"{number}.log" for number, command in enumerate(commands)}
    try:
        for command, log in logs.items():
            argv = (sys.executable, "-m", *shlex.split(command), "-l", "INFO")
            program = Program(name=log.stem, argv=argv, log=log, env=environment, cwd=directory)
            supervisor.start(program, restart=None)
        for command, log in logs.items():
            said = "beat: Starting" if " beat" in command else "ready."
            wait_until(
                partial(_says, log, said), timeout=60, what=f"{command} is ready",
                details=log.read_text,
            )  # fmt: skip
        yield supervisor
    finally:
        supervisor.stop_all(in_a_hurry=lambda: True)


def _says(log: Path, words: str) -> bool:
    return words in log.read_text()


def send_from_elsewhere(broker_url: str) -> None:
    """The README's line, as a service sends it that has Celery and nothing of ours."""
    (line,) = re.findall(r"`(app\.send_task\([^`]+\))`", README)
    assert "{...}" in line
    line = line.replace("{...}", '{"topic": "hello from elsewhere"}')
    with Celery(broker=broker_url) as app:
        eval(line, {"app": app})  # noqa: S307 - the README's own line


def test_the_question_to_a_model_is_code_that_runs() -> None:
    (example,) = [block for block in blocks("python") if "def assess(" in block]
    names: dict[str, Any] = {}
    given = "from pydantic import BaseModel\nfrom tasks import Context, step\nquotes_what_it_says = bool\n"
    exec(given + example, names)  # noqa: S102 - the README's own lines
    ctx = Context.for_test(llm=lambda _question: {"risks": ["fees"]})
    assert names["assess"](ctx, "...").risks == ["fees"]


def test_the_diagram_is_the_table() -> None:
    assert blocks("mermaid") == [mermaid() + "\n"]


def test_what_it_promises_in_python_can_be_imported() -> None:
    (line,) = re.findall(r"`(from ops\.client import [^`]+)`", README)
    exec(line, {})  # noqa: S102 - the README's own line
