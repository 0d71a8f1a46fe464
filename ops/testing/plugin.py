"""A pytest plugin: ``certify`` as a fixture. Enabled where it is wanted, since it costs minutes.

    # conftest.py
    pytest_plugins = ["ops.testing.plugin"]

    # test_agent.py
    def test_survives_everything(certify):
        report = certify("acme.review:contract_review", input={"uri": "file:///tmp/{case}.pdf"})
        assert report.ok, str(report)

It runs ``onward certify`` as a process of its own: a certification points its process at servers of its
own and starts children that are to die with it, which a process full of other tests is no place for.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ops.testing.certify.report import Report

_STOP_TIMEOUT = 60.0  #: seconds that an interrupted certification gets to stop its servers
_JUDGED = (0, 1)  #: exit codes that come with a report


class Certify:
    """What the fixture is. The options are those of ``onward certify --help``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(
        self, workflow: "str | Callable[..., Any]", *, input: Mapping[str, object] | None = None,
        points: Sequence[str] = (), only: Sequence[str] = (),
        counter: "str | Callable[[str], Mapping[str, int]] | None" = None,
        setup: "str | Callable[[str], object] | None" = None, reads: Sequence[str] = (),
        tool_timeout: float | None = None, patience: float | None = None,
    ) -> "Report":  # fmt: skip
        """Certify ``"module:function"``, or the workflow itself, and return what was found."""
        options = {
            "--points": ",".join(points),
            "--counter": _named(counter) if counter is not None else "",
            "--setup": _named(setup) if setup is not None else "",
            "--tool-timeout": tool_timeout,
            "--patience": patience,
        }
        given = [_named(workflow), "--input", json.dumps(dict(input or {})), "--json"]
        single = [word for name, value in options.items() if value for word in (name, str(value))]
        repeated = [*_each("--only", only), *_each("--reads", reads)]
        return _play([*given, *single, *repeated], directory=self._directory)


@pytest.fixture
def certify(request: pytest.FixtureRequest) -> Certify:
    """Certify a workflow of yours on a stack of its own."""
    return Certify(request.config.rootpath)


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _named(what: "str | Callable[..., Any]") -> str:
    if isinstance(what, str):
        return what
    function = getattr(what, "function", what)  # a workflow wraps the function it was made of
    return f"{function.__module__}:{function.__name__}"


def _play(arguments: list[str], *, directory: Path) -> "Report":
    from ops.cli.local import python  # noqa: PLC0415 - loads the product, which most test runs can do without
    from ops.testing.certify.report import Report  # noqa: PLC0415

    command, environment = python("certify", *arguments)
    with subprocess.Popen(
        command, cwd=directory, env={**environment, "PYTHONPATH": _import_path(environment)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            told, _ = process.communicate()
        except BaseException:
            _stop(process)
            raise
    if process.returncode not in _JUDGED or not told.strip():
        pytest.fail(f"onward certify {' '.join(arguments)} gave no report; stderr says why")
    return Report.from_json(json.loads(told))


def _import_path(environment: Mapping[str, str]) -> str:
    """What this process finds beside the installed packages: configured paths, the tests' own."""
    found = [
        entry for entry in sys.path if entry and not entry.startswith((sys.prefix, sys.base_prefix))
    ]
    return os.pathsep.join(dict.fromkeys([*found, environment["PYTHONPATH"]]))


def _stop(process: "subprocess.Popen[str]") -> None:
    """Let it stop its servers. A SIGKILL takes them along as well, and leaves their home behind."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_STOP_TIMEOUT)
        return
    process.kill()
