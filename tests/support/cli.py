"""The command line as a user has it: a process, its two streams, its exit code."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.cli.local import python

#: What a process of a test must not inherit from the process that runs the tests.
_NOT_OURS = "ONWARD_"
_TIMEOUT = 90.0  #: seconds for one command


@dataclass(frozen=True, slots=True)
class Said:
    """What one command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        assert self.code == 0, self
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one line on stderr of a command that was refused."""
        assert self.code != 0, self
        assert "Traceback" not in self.err, self.err
        (line,) = self.err.strip().splitlines()
        return line


@dataclass(frozen=True, slots=True)
class Cli:
    """``onward``, run in a directory of the test's own."""

    directory: Path
    environment: Mapping[str, str]

    def __call__(self, *arguments: str, **more: str) -> Said:
        command, environment = self.command(*arguments, **more)
        done = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True,
            timeout=_TIMEOUT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    def command(self, *arguments: str, **more: str) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of one command."""
        command, inherited = python(*arguments)
        clean = {name: value for name, value in inherited.items() if not name.startswith(_NOT_OURS)}
        return command, {**clean, "USER": "tester", **self.environment, **more}


def cli_for(directory: Path, **environment: str) -> Cli:
    """The command line with these variables and no other of ours."""
    assert os.environ.get("PATH")
    return Cli(directory, environment)
