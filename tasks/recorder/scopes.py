"""Which request of a step is which: its scope, and its position in it, the same in every attempt.

The body has scope ``""``. A task of ``asyncio`` has one of its own below that of whoever created it, numbered in
the order of creation: ``/0``, ``/0/2``. Where no order is the same after a crash, in plain threads and in tasks that
take their work from a queue, the author names the scope: ``with ctx.scope("left")`` is ``/name:left`` in any of
them. Requests of one scope come one after the other; otherwise nothing is sent, since two answers could change
places.

The path travels in a context variable, which tasks and ``asyncio.to_thread`` inherit, and plain threads do not.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from models.ids import check_identifier
from tasks.errors import CallScopeNeeded
from tasks.ordering import task_now
from tasks.within import Within

_Task: TypeAlias = "asyncio.Task[Any]"


@dataclass(slots=True)
class _Use:
    """Who makes the requests of one scope, and how many there were."""

    position: int = 0
    under_way: bool = False
    thread: int | None = None
    task: "weakref.ref[_Task] | None" = None
    within: str | None = None  #: path of the numbered task that has used it


class Numbering:
    """The numbers given out in one attempt. Safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._uses: dict[str, _Use] = {}
        self._children: dict[str, int] = {}

    def use(self, path: str) -> _Use:
        return self._uses.setdefault(path, _Use())

    def child(self, path: str) -> str:
        """The path of the next task created in a scope."""
        with self.lock:
            number = self._children.get(path, 0)
            self._children[path] = number + 1
        return f"{path}/{number}"

    def reached(self, path: str) -> int:
        """The position that the next request of a scope would take."""
        with self.lock:
            use = self._uses.get(path)
            return use.position if use else 0

    def used_here(self) -> set[str]:
        """The scopes whose last request was made by this thread."""
        here = threading.get_ident()
        with self.lock:
            return {path for path, use in self._uses.items() if use.thread == here}


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the code that asks stands."""

    path: str
    numbering: Numbering
    of_task: bool  #: an asyncio task's own: it may ask from threads, but for one thing at a time
    what: str = field(default="", compare=False)  #: step and run, for messages
    base: str = ""  #: what a name within is added to: the last name, whichever task does it
    task: str = ""  #: path of the numbered task that it is in


_scope: ContextVar[Scope | None] = ContextVar("onward_scope", default=None)
_sending: ContextVar[bool] = ContextVar("onward_sending", default=False)
#: Tasks that were alive, without a number, when their loop began to number: their order is anybody's guess.
_unnumbered: "weakref.WeakSet[_Task]" = weakref.WeakSet()


def entered(numbering: Numbering, what: str) -> AbstractContextManager[None]:
    """The body of a step runs within: its scope is the root."""
    return Within(_scope, Scope("", numbering, of_task=False, what=what))


def enter_task() -> None:
    """The asyncio task that calls this is the body itself: its scope is the root, and its loop numbers tasks."""
    scope = _scope.get()
    if scope is not None:
        _scope.set(Scope("", scope.numbering, of_task=True, what=scope.what))
        number_tasks(asyncio.get_running_loop())


@contextmanager
def named(numbering: Numbering, name: str, *, what: str) -> Iterator[None]:
    """Requests made within are numbered by themselves. A thread that inherited nothing starts from the root."""
    check_identifier("name", name)
    outer = _scope.get()
    known = outer if outer is not None and outer.numbering is numbering else None
    step = name.replace("%", "%25").replace("/", "%2F")
    path = f"{known.base if known else ''}/name:{step}"
    inner = Scope(
        path, numbering, of_task=task_now() is not None, what=what, base=path,
        task=known.task if known else "",
    )  # fmt: skip
    with Within(_scope, inner):
        yield


def across_threads() -> None:
    """The scope that this code has just entered belongs to one thing, whichever thread of a pool goes on with it.

    For an adapter that knows so: its framework runs the thing on one thread at a time.
    """
    scope = _scope.get()
    if scope is not None:
        _scope.set(replace(scope, of_task=True))


def sending() -> AbstractContextManager[None]:
    """A real request is made within: tasks created for it are not counted, since a replay makes none."""
    return Within(_sending, True)


def current_path(numbering: Numbering) -> str | None:
    """The path of whoever asks now; None where it has none."""
    scope = _scope.get()
    return scope.path if scope is not None and scope.numbering is numbering else None


@contextmanager
def asking(numbering: Numbering, *, what: str) -> Iterator["Turn"]:
    """One request at a time of the scope that this code is in. Raises ``CallScopeNeeded``: nothing was sent."""
    scope = _scope.get()
    if scope is None or scope.numbering is not numbering:
        raise CallScopeNeeded(_needed(what, "is made in a thread of its own", "its order"))
    task = task_now()
    if task is not None:
        number_tasks(asyncio.get_running_loop())
    with numbering.lock:
        use = numbering.use(scope.path)
        _check(use, scope, task, what)
        use.under_way, use.thread, use.within = True, threading.get_ident(), scope.task
        use.task = weakref.ref(task) if task is not None else use.task
    try:
        yield Turn(scope.path, use, numbering)
    finally:
        with numbering.lock:
            use.under_way = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to make the requests of one scope, for one call."""

    path: str
    _use: _Use
    _numbering: Numbering

    @property
    def position(self) -> int:
        """The next one."""
        return self._numbering.reached(self.path)

    def skip_to(self, position: int) -> None:
        """Those before it are used up."""
        with self._numbering.lock:
            self._use.position = position

    def take(self) -> int:
        """The next position."""
        with self._numbering.lock:
            position = self._use.position
            self._use.position += 1
            return position

    def give_back(self) -> None:
        """The position taken last was used for nothing that a replay would meet."""
        with self._numbering.lock:
            self._use.position -= 1


def _check(use: _Use, scope: Scope, task: "_Task | None", what: str) -> None:
    if use.under_way:
        raise CallScopeNeeded(
            _needed(
                what, "is made while another one of the same scope is under way", "which is first"
            )
        )
    if use.within not in (None, scope.task):
        raise CallScopeNeeded(
            _needed(
                what, f"is made in scope {scope.path!r}, as one of another task was", "their order"
            )
        )
    before = use.task() if use.task is not None else None
    if task is not None:
        if before is not None and before is not task and (not before.done() or task in _unnumbered):
            raise CallScopeNeeded(
                _needed(
                    what, "comes from one of several asyncio tasks without numbers", "their order"
                )
            )
    elif use.thread not in (None, threading.get_ident()) and not scope.of_task and before is None:
        raise CallScopeNeeded(
            _needed(what, "comes from another thread than the one before it", "their order")
        )


def _needed(what: str, how: str, unsure: str) -> str:
    return (
        f"A request of {what} {how}: {unsure} is not the same after a crash, so nothing was sent. Give each thread "
        f"or task a scope of its own, with a name that is the same in every attempt: with ctx.scope(name): ..."
    )


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop that numbers its tasks, for async bodies."""
    loop = asyncio.new_event_loop()
    number_tasks(loop)
    return loop


def number_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let this loop give each task a scope of its own from now on. Harmless when it does already.

    For whoever drives a loop of his own (an agent's ``run_sync``): before it runs.
    """
    factory: Any = loop.get_task_factory()
    if isinstance(factory, _Factory):
        return
    numbering: Any = _Factory(factory)
    loop.set_task_factory(numbering)
    _unnumbered.update(asyncio.all_tasks(loop))


class _Factory:
    """Creates tasks as the loop would have, in a context that knows their number."""

    def __init__(self, inner: Callable[..., Any] | None) -> None:
        self._inner = inner

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Generator[Any, None, Any],
        *,
        context: Context | None = None,
        **options: Any,
    ) -> Any:
        context = context or copy_context()
        context.run(_number)
        if self._inner is not None:
            return self._inner(loop, coro, context=context, **options)
        return asyncio.Task(coro, loop=loop, context=context, **options)


def _number() -> None:
    scope = _scope.get()
    if scope is not None and not _sending.get():
        path = scope.numbering.child(scope.path)
        _scope.set(replace(scope, path=path, of_task=True, task=path))
