"""Named instants at which a test may kill or stop a process. Free when none is armed.

``ONWARD_FAILPOINTS="P4:kill@contract-review.read,S4:kill"`` arms the points; ``@`` narrows one to a step's
Celery name. Each fires once over all processes: whoever creates its marker file in
``ONWARD_FAILPOINT_DIR`` first. The marker is also how a test knows that its fault fired.

A fault kit that plays many faults at once, each in a run of its own, chooses by itself: ``choose_with``.
"""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg


class FailPoint(StrEnum):
    """Where things can be cut. P: of a step. E: of an effect in its body. L: of a model call. S: of a sweep."""

    P0 = "P0"  #: message received, claim not committed
    P1 = "P1"  #: claim committed, body not entered
    P2 = "P2"  #: in the body: request sent, effect not applied (the outside service holds it)
    P3 = "P3"  #: in the body: effect applied, response not received
    P4 = "P4"  #: result in memory, not committed
    P5 = "P5"  #: COMMIT of the result sent, answer not received
    P6 = "P6"  #: result committed, successors unpublished
    P7 = "P7"  #: successors published, message unacked
    E1 = "E1"  #: intent committed, nothing sent
    E4 = "E4"  #: answer in memory, settlement not committed
    E5 = "E5"  #: COMMIT of the settlement sent, answer not received
    E6 = "E6"  #: settlement committed, the body goes on
    L1 = "L1"  #: money reserved for a model call, nothing sent
    L2 = "L2"  #: answer in memory, not recorded
    L3 = "L3"  #: answer recorded, no verdict on it
    L4 = "L4"  #: verdict durable, the body goes on
    S1 = "S1"  #: stale rows selected, nothing written
    S2 = "S2"  #: marked unknown, undecided
    S3 = "S3"  #: outside world asked, what it said not written
    S4 = "S4"  #: decision written, nothing published
    S5 = "S5"  #: published, pass not recorded


@dataclass(frozen=True, slots=True)
class Armed:
    """One armed point: what happens there, and for which step (None: any)."""

    action: str
    step_name: str | None


def parse(spec: str) -> dict[FailPoint, Armed]:
    """Read ``ONWARD_FAILPOINTS``; an unknown point or action is an error, never ignored."""
    armed = {}
    for entry in filter(None, (part.strip() for part in spec.split(","))):
        point, _, rest = entry.partition(":")
        action, _, step_name = rest.partition("@")
        if action not in _ACTIONS:
            raise ValueError(f"ONWARD_FAILPOINTS: {entry!r} names no action of {sorted(_ACTIONS)}")
        armed[FailPoint(point)] = Armed(action, step_name or None)
    return armed


_ACTIONS: "Mapping[str, signal.Signals]" = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_armed = parse(os.environ.get("ONWARD_FAILPOINTS", ""))

#: (point, the step's Celery name, the effect's key) -> the action to take there, if any.
Choose = Callable[[FailPoint, str | None, str | None], str | None]


@dataclass(frozen=True, slots=True)
class _Commit:
    """The statement to die in. The heartbeat's statements run beside it, on a thread of their own."""

    point: FailPoint
    step_name: str
    about: str | None
    thread: int


_next_commit: _Commit | None = None


def choose_with(choose: Choose | None) -> None:
    """Let this process ask ``choose`` at each point, instead of what the environment arms."""
    global _choose  # noqa: PLW0603 - one word of process state, set before any step runs
    _choose = choose


def failpoint(point: FailPoint, step_name: str | None = None, about: str | None = None) -> None:
    """Kill or stop this process if the point is armed for the step and has not fired yet.

    ``about`` is the key of the effect that the point lies in.
    """
    if _choose is not None and (action := _choose(point, step_name, about)) is not None:
        os.kill(os.getpid(), _ACTIONS[action])


def arm_commit(step_name: str) -> None:
    """P5: let the next statement be sent and this process die before its answer."""
    _arm(FailPoint.P5, step_name, None)


def arm_effect_commit(step_name: str, about: str) -> None:
    """E5: the same for the settlement of an effect."""
    _arm(FailPoint.E5, step_name, about)


def _arm(point: FailPoint, step_name: str, about: str | None) -> None:
    global _next_commit  # noqa: PLW0603 - one word of process state, guarded by the thread it names
    if _choose is not None:
        _next_commit = _Commit(point, step_name, about, threading.get_ident())


def armed_commit() -> bool:
    """Whether the statement about to run is the one to die in (see ``arm_commit``)."""
    global _next_commit  # noqa: PLW0603 - see ``_arm``
    if (due := _next_commit) is None or due.thread != threading.get_ident():
        return False
    _next_commit = None
    return _choose is not None and _choose(due.point, due.step_name, due.about) is not None


def kill_after_sending(
    connection: "psycopg.Connection[tuple[object, ...]]",
    statement: LiteralString,
    params: "Mapping[str, object]",
) -> None:
    """Put the statement on the wire, with its COMMIT, and die without reading what the server says."""
    import psycopg  # noqa: PLC0415 - only a process that is about to die needs it

    text = psycopg.ClientCursor(connection).mogrify(statement, params)
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        text += "; COMMIT"  # the last statement of a transaction of several
    connection.pgconn.send_query(text.encode())
    while connection.pgconn.flush():
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _choice_of_environment(
    point: FailPoint, step_name: str | None, _about: str | None
) -> str | None:
    armed = _armed.get(point)
    if armed is None or armed.step_name not in (None, step_name):
        return None
    marker = Path(os.environ["ONWARD_FAILPOINT_DIR"]) / point.value
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return None
    return armed.action


_choose: Choose | None = _choice_of_environment if _armed else None
