"""Loaded by the workers of a certification (``celery worker -I ops.testing.certify.hook``), by nothing else.

Importing it arms the process: its requests are recorded, its points ask the schedule of their run.
"""

import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from celery import current_task, signals

from models import failpoints
from models.failpoints import FailPoint
from models.journal.values import Wakeup
from models.settings import settings
from ops.testing.certify import http_client, httpx_transport
from ops.testing.certify.records import VARIABLE, Notebook
from ops.testing.certify.wire import Wire
from tasks import registry
from tasks.errors import AgentsError
from tasks.publishing import publish
from tasks.tools import Tool

_FUNCTIONS = ("execute", "lookup", "compensate", "lookup_compensation")


def arm(wire: Wire) -> None:
    """Everything of a worker process that a certification looks at or hurts."""
    http_client.install(wire)
    httpx_transport.install(wire)
    _watch_tasks(wire)
    _watch_tools(wire)
    _watch_connections(wire)
    failpoints.choose_with(lambda *where: _choose(wire, *where))


def _watch_tasks(wire: Wire) -> None:
    def begin(task: Any, kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        given = kwargs or {}
        wire.begin_task(
            str(given.get("run_id", "")), str(given.get("step_key", "")) if _is_step(task) else ""
        )

    def end(**_: Any) -> None:
        wire.end_task()

    signals.task_prerun.connect(begin, weak=False)
    signals.task_postrun.connect(end, weak=False)


def _is_step(task: Any) -> bool:
    try:
        return registry.step_named(task.name) is not None
    except AgentsError:
        return False


def _watch_tools(wire: Wire) -> None:
    """Wrap the functions of every tool there is and of those still to be defined."""
    for kind in _subclasses(Tool):
        _wrap_tool(kind, wire)
    original = Tool.__init_subclass__.__func__  # type: ignore[attr-defined]

    def define(cls: Any, /, **options: Any) -> None:
        original(cls, **options)
        _wrap_tool(cls, wire)

    Tool.__init_subclass__ = classmethod(define)  # type: ignore[assignment]


def _wrap_tool(kind: Any, wire: Wire) -> None:
    for name in _FUNCTIONS:
        if name in vars(kind):
            setattr(kind, name, _called(vars(kind)[name], name, wire))


def _called(function: Callable[..., Any], name: str, wire: Wire) -> Callable[..., Any]:
    @wraps(function)
    def call(self: Any, *args: Any, key: str, **kwargs: Any) -> Any:
        about = {"tool": self.name, "function": name, "key": key, "timeout": self.promise.timeout}
        with wire.calling(**about):
            found = function(self, *args, key=key, **kwargs)
        return _awaited(found, wire, about) if inspect.isawaitable(found) else found

    return call


async def _awaited(found: Awaitable[Any], wire: Wire, about: dict[str, Any]) -> Any:
    with wire.calling(**about):
        return await found


def _subclasses(kind: Any) -> list[Any]:
    direct = type.__subclasses__(kind)
    return [*direct, *(deeper for one in direct for deeper in _subclasses(one))]


def _watch_connections(wire: Wire) -> None:
    """Python reports each connection before it is made; libraries in C (libpq) make theirs unseen."""
    ours = urlsplit(settings().broker_url)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(args[1], tuple):
            host, port = args[1][0], args[1][1]
            if port != (ours.port or 6379):
                wire.note_connection(str(host), int(port))

    sys.addaudithook(audit)


def _choose(wire: Wire, point: FailPoint, step_name: str | None, about: str | None) -> str | None:
    if wire.duplicates(point):
        _send_again()
    return wire.choose(point, step_name, about)


def _send_again() -> None:
    """One more copy of the message that this process is working on."""
    task = current_task._get_current_object()
    kwargs, queue = task.request.kwargs, task.request.delivery_info["routing_key"]
    copy = Wakeup(
        kwargs["run_id"], kwargs["branch"], kwargs["step_key"], task.name, queue, attempt=1
    )
    publish(task.app, [copy])


if VARIABLE in os.environ:
    arm(Wire(Notebook(Path(os.environ[VARIABLE]))))
