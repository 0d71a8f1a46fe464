"""The command line in this process: what one command wrote, and its exit code."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from models import database
from models.settings import settings
from ops.cli import run
from tasks import registry


@dataclass(frozen=True)
class Said:
    """What one command wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


Onward = Callable[..., Said]


@contextmanager
def commands_here(
    agents: str, *, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Onward]:
    """Commands over this test's journal, with these agents; keyword arguments are variables."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("ONWARD_AGENTS", agents)
    monkeypatch.setenv("USER", "tester")
    root, handlers = logging.getLogger(), [*logging.getLogger().handlers]

    def call(*arguments: str, **environment: str) -> Said:
        with pytest.MonkeyPatch.context() as more:
            for name, value in environment.items():
                more.setenv(name, value)
            settings.cache_clear()
            database.close()
            code = run(arguments)
            said = capsys.readouterr()
        settings.cache_clear()
        database.close()
        return Said(code, said.out, said.err)

    with registry.isolated():
        sys.modules.pop(agents, None)  # a module registers its workflows when it is imported
        yield call
        sys.modules.pop(agents, None)
    root.handlers = handlers
