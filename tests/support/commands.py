"""The command line in this process: what one command wrote, and its exit code."""

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from models import database
from models.settings import settings
from ops.cli import run
from tasks import registry
from tests.support.cli import Said

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
