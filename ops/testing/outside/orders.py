"""What a test ordered to be done to coming requests: faults, and waiting."""

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

HOLD_LIMIT = 60.0  #: seconds after which a forgotten hold lets go
ANY = "*"  #: a name in an order that means every name

Subject = tuple[str, str]  #: (name, ``create`` | ``lookup`` | ``delete``)


@dataclass(frozen=True, slots=True)
class Fault:
    """How one request is treated. The default is: well."""

    applied: bool = True  #: whether what was asked for is done
    status: int | None = None  #: answered instead of the right one
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  #: no answer, the connection is closed
    silent: float = 0.0  #: seconds without an answer, and then it is cut
    garbled: bool = False  #: the right status, and a body that nobody can read
    delay: float = 0.0  #: seconds before it is done, whoever still waits
    cut_first: bool = (
        False  #: the connection is closed at once, and the effect lands after the delay
    )
    hidden: float = 0.0  #: seconds for which look-ups miss what was made
    provisioning: float = 0.0  #: seconds for which what was made is not ready


#: Those that go together with others; of the rest, one is taken for one request.
BESIDE = ("apply_delay", "hidden", "provisioning")


def fault_of(what: str, order: dict[str, Any]) -> Fault:
    """The fault of an order. Raises ``KeyError`` for an unknown one."""
    seconds, status = float(order.get("seconds") or 0.0), int(order.get("status") or 500)
    retry_after = {"Retry-After": str(order.get("retry_after", 1))}
    return {
        "drop_response": Fault(cut=True),
        "drop_request": Fault(applied=False, cut=True),
        "5xx_after_apply": Fault(status=status),
        "5xx_before_apply": Fault(applied=False, status=status),
        "429": Fault(applied=False, status=429, headers=retry_after),
        "refuse": Fault(applied=False, status=int(order.get("status") or 422)),
        "redirect": Fault(
            applied=False,
            status=int(order.get("status") or 307),
            headers={"Location": str(order.get("location", "/"))},
        ),
        "hang": Fault(applied=False, silent=seconds or HOLD_LIMIT),
        "garbled": Fault(garbled=True),
        "apply_delay": Fault(delay=seconds, cut_first=order.get("connection") == "cut"),
        "hidden": Fault(hidden=seconds),
        "provisioning": Fault(provisioning=seconds),
    }[what]


class Orders:
    """Faults to come, oldest first, by name and by what is asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._main: dict[Subject, deque[Fault]] = {}
        self._beside: dict[tuple[Subject, str], deque[Fault]] = {}

    def add(self, subject: Subject, what: str, *, fault: Fault, times: int) -> None:
        """The next so many requests of this subject are treated so."""
        with self._lock:
            if what in BESIDE:
                self._beside.setdefault((subject, what), deque()).extend([fault] * times)
            else:
                self._main.setdefault(subject, deque()).extend([fault] * times)

    def clear(self, name: str) -> None:
        """Take back what was ordered for a name, or for all."""
        with self._lock:
            for subject in [one for one in self._main if name in (ANY, one[0])]:
                del self._main[subject]
            for key in [one for one in self._beside if name in (ANY, one[0][0])]:
                del self._beside[key]

    def take(self, name: str, on: str) -> Fault:
        """How the request that has just come is treated."""
        with self._lock:
            subjects = ((name, on), (ANY, on))
            found = _first(self._main.get(subject) for subject in subjects) or Fault()
            for what in BESIDE:
                extra = _first(self._beside.get((subject, what)) for subject in subjects)
                found = _together(found, extra) if extra else found
            return found


def _first(queues: Any) -> Fault | None:
    return next((queue.popleft() for queue in queues if queue), None)


def _together(one: Fault, extra: Fault) -> Fault:
    return replace(
        one,
        delay=one.delay or extra.delay,
        cut_first=one.cut_first or extra.cut_first,
        hidden=one.hidden or extra.hidden,
        provisioning=one.provisioning or extra.provisioning,
    )


class Holds:
    """Which requests wait, where, and until when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ordered: dict[tuple[Subject, str], int] = {}
        self._waiting: dict[str, list[threading.Event]] = {}

    def order(self, subject: Subject, where: str, times: int) -> None:
        with self._lock:
            self._ordered[subject, where] = times

    def wait(self, subject: Subject, where: str) -> None:
        """Wait here, when that was ordered, until a release or the limit."""
        with self._lock:
            left = self._ordered.get((subject, where), 0)
            if left <= 0:
                return
            self._ordered[subject, where] = left - 1
            released = threading.Event()
            self._waiting.setdefault(subject[0], []).append(released)
        released.wait(HOLD_LIMIT)

    def held(self, name: str) -> int:
        with self._lock:
            return len(self._waiting.get(name, []))

    def release(self, name: str, count: int | None) -> int:
        """Let the ``count`` oldest go on, or all."""
        with self._lock:
            waiting = self._waiting.get(name, [])
            leaving, self._waiting[name] = waiting[:count], waiting[len(waiting[:count]) :]
        for released in leaving:
            released.set()
        return len(leaving)
