"""Which deployment a command talks to. Decided once, before the settings are read for the first time.

An explicit ``ONWARD_DATABASE_URL`` wins. Otherwise the local stack that runs on this home is meant, if
there is one, and then the defaults of the settings.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from ops.stack.home import Home
from ops.stack.state import StackState, running

DEFAULT_AGENTS = "examples.contract_review.agent"

_EXPLICIT = "ONWARD_DATABASE_URL"


def home(environ: MutableMapping[str, str] = os.environ) -> Home:
    """The home of the local stack: ``ONWARD_HOME``, else ``.onward`` below the current directory."""
    return Home.at(environ.get("ONWARD_HOME") or ".onward")


def is_explicit(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Whether the user names servers of his own."""
    return bool(environ.get(_EXPLICIT)) and environ.get("ONWARD_STACK") != environ[_EXPLICIT]


def point_at_stack(environ: MutableMapping[str, str] = os.environ) -> StackState | None:
    """Point this process's settings at the running local stack, unless others are named."""
    _find_agents_in(Path.cwd())
    if environ.get(_EXPLICIT):
        return None
    environ.setdefault("ONWARD_AGENTS", DEFAULT_AGENTS)
    own = home(environ)
    state = running(own) or running(
        Home(own.path / "demo")
    )  # the demo keeps a home of its own there
    if state is not None:
        adopt(state, environ)
    return state


def adopt(state: StackState, environ: MutableMapping[str, str] = os.environ) -> None:
    """Take a stack's addresses and agents for our own, and remember that it was not the user's wish."""
    environ[_EXPLICIT] = environ["ONWARD_STACK"] = state.database_url
    environ["ONWARD_BROKER_URL"] = state.broker_url
    if state.agents:
        environ["ONWARD_AGENTS"] = state.agents
    if state.directory:
        _find_agents_in(Path(state.directory))


def _find_agents_in(directory: Path) -> None:
    """Celery puts the directory first on the import path; last is enough, and shadows nothing."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def agents(environ: MutableMapping[str, str] = os.environ) -> str:
    """Packages that a local stack loads when none are named: the example's."""
    return environ.get("ONWARD_AGENTS") or DEFAULT_AGENTS
