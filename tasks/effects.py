"""The ledger behind ``ctx.call``: every call of one attempt, and whether anything of it is in doubt.

The body may make of a stop signal what it likes: the ledger remembers it, takes no further call, and the
engine asks it in the end. No step completes while one of its effects is in doubt.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from models import database
from models.journal import effects, loose_ends
from models.journal.effect_values import Sender
from models.journal.errors import JournalError
from models.journal.values import Claimed
from models.states import BlockReason, EffectClass
from tasks import patience
from tasks.asking import Attempt, Reading, Wanted, look_at_nothing
from tasks.errors import (
    AttemptLost,
    CallRefused,
    EffectBlocked,
    EffectExhausted,
    EffectUnknown,
    Stop,
)
from tasks.ordering import Order
from tasks.sending import Sending
from tasks.tool_base import Read, Refused, Tool
from tasks.tool_registry import require_recoverable, tools
from tasks.tool_requests import Asked

_log = logging.getLogger("onward.engine")


class Ledger:
    """The calls of one attempt. Made on the thread that runs the body."""

    def __init__(
        self, claimed: Claimed, sender: Sender, *, require_trust: Callable[[], object]
    ) -> None:
        self._claimed, self._sender, self._require_trust = claimed, sender, require_trust
        self._before_effect: Callable[[], object] = look_at_nothing
        self._order = Order(claimed.run_id, claimed.step_key)
        self._order.enter()
        self._thread = threading.get_ident()
        self._lock = threading.RLock()
        self._in_flight = 0
        self._requests: list[Asked] = []  #: those that hold secrets
        self._tools_known = claimed.attempt == 1
        self._refused: list[str] = []  #: what the body has been told no about and may go on from
        self._stop: Stop | None = None
        self._barred: str | None = None

    @cached_property
    def _attempt(self) -> Attempt:
        return Attempt(
            self._claimed, self._sender, self._require_trust, self.note, self._before_effect
        )

    @cached_property
    def _changed(self) -> threading.Condition:
        return threading.Condition(self._lock)

    @property
    def asked(self) -> set[str]:
        """The keys of everything that the body has asked for."""
        return self._order.given

    def call(self, tool: Tool[Any, Any], request: Any, *, name: str | None) -> Any:
        """Ask once for what the outside world should do; its result, whoever recorded it."""
        return self._perform(tool, request, self._admit(tool, name))

    def read(
        self, tool: Tool[Any, Any], request: Any, *, name: str | None, wanted: dict[str, Any]
    ) -> Read[Any]:
        """``call`` of a tool that changes nothing; says whether its answer is an earlier one."""
        return _require_read(
            self._perform(tool, request, self._admit(tool, name), wanted=Wanted(**wanted))
        )

    async def aread(
        self, tool: Tool[Any, Any], request: Any, *, name: str | None, wanted: dict[str, Any]
    ) -> Read[Any]:
        key = self._admit(tool, name)
        return _require_read(
            await asyncio.to_thread(self._perform, tool, request, key, wanted=Wanted(**wanted))
        )

    async def acall(self, tool: Tool[Any, Any], request: Any, *, name: str | None) -> Any:
        """``call`` on another thread. Its place among the calls is taken here, where order is known."""
        return await asyncio.to_thread(self._perform, tool, request, self._admit(tool, name))

    def strike(self, text: str) -> str:
        """``text`` without the secrets of any request of this attempt."""
        for asked in self._requests:
            text = asked.strike(text)
        return text

    def before_effects(self, look: Callable[[], object]) -> None:
        """Look before an effect is sent that was not sent before; what that raises stops it. Before any call."""
        self._before_effect = look

    def enter_task(self) -> None:
        """The asyncio task that calls this is the body's own."""
        self._order.enter()

    def bar(self, why: str | None) -> None:
        """Refuse calls from now on, in these words; None: take them again."""
        with self._lock:
            self._barred = why

    def close(self) -> Stop | None:
        """Take no more calls, wait for those of other threads, and say what stops the step, if anything."""
        self.bar("its body has ended")
        with self._lock:
            try:
                if self._in_flight:
                    self._changed.wait_for(lambda: self._in_flight == 0)
            except BaseException:
                self.note(self._cut_short("a call of another thread was still under way"))
            if not self._in_flight:  # who looks refers to this: a cycle waits for the collector
                self._before_effect = look_at_nothing
            return self._stop

    def left_over(self) -> Stop | None:
        """Effects of earlier attempts that are in doubt and that this attempt, about to end, did not ask for."""
        if self._claimed.attempt == 1:
            return None
        try:
            keys = patience.recorded(
                lambda: loose_ends.left_over(self._claimed), confirmed=lambda: None
            )
        except JournalError as error:
            return self.note(AttemptLost(str(error)))
        return (
            self.note(self._cut_short(f"{', '.join(keys)} of an earlier attempt")) if keys else None
        )

    def report_unasked(self) -> None:
        """Tell of effects that an earlier attempt settled and the finished body did not ask for."""
        if self._claimed.attempt == 1:
            return
        try:
            keys = patience.recorded(
                lambda: effects.note_unasked(self._claimed, self.asked), confirmed=lambda: None
            )
        except JournalError as error:
            _log.warning("Effects that were not asked for again are not reported: %s", error)
            return
        if keys:
            _log.warning(
                "Step %s completes without asking again for what an earlier attempt did: %s",
                self._claimed.step_key, ", ".join(keys),
            )  # fmt: skip

    def _admit(self, tool: Tool[Any, Any], name: str | None) -> str:
        if not isinstance(tool, Tool):
            raise CallRefused(
                f"ctx.call takes a tool and its request, as in ctx.call(FileReport(), report), not {tool!r}."
            )
        self.require_open(f"call of {tool.name}")
        require_recoverable(tool)
        self._require_known_tools()
        self._go_past_refusals()  # before the key, which a time limit in here would otherwise use up
        return self._order.key(tool.name, name)

    def _require_known_tools(self) -> None:
        """A tool's name is part of its keys: under another name it would do again what it has done."""
        if self._tools_known:
            return
        try:
            missing = sorted(loose_ends.tools_called(self._claimed) - set(tools()))
        except JournalError as error:
            raise self.note(AttemptLost(str(error))) from error
        if missing:
            raise self.note(
                EffectBlocked(
                    f"An earlier attempt of step {self._claimed.step_key!r} called {', '.join(missing)}, which this "
                    f"worker does not have: a tool that was renamed would do again what it has done. Give it its "
                    f"old name, import it where the agent's module is loaded, or start workers that have it; then "
                    f"`onward runs retry` (`onward effects list --run {self._claimed.run_id}`).",
                    reason=BlockReason.VERSION_INCOMPATIBLE,
                )
            )
        self._tools_known = True

    def _go_past_refusals(self) -> None:
        """The body asks on after a refusal: that is its answer from here on, also for later attempts."""
        with self._lock:
            passed = [key for key in self._refused if self._order.has_gone_past(key)]
        if not passed:
            return
        try:
            patience.recorded(
                lambda: effects.go_past(passed, self._claimed),
                confirmed=lambda: None,
                stoppable=True,
            )
        except JournalError as error:
            raise self.note(AttemptLost(str(error))) from error
        with self._lock:
            self._refused = [key for key in self._refused if key not in passed]

    def _perform(
        self, tool: Tool[Any, Any], request: Any, key: str, *, wanted: Wanted | None = None
    ) -> Any:
        with self._lock:
            self.require_open(f"call of {tool.name}")
            self._in_flight += 1
        try:
            return self._send(tool, request, key, wanted)
        finally:
            self._end()

    @contextmanager
    def under_way(self, what: str) -> Iterator[None]:
        """A request that the recorder makes: refused, waited for and stopped by the same rules as a call."""
        self.require_open(what)
        self._go_past_refusals()  # the model may be told of them
        with self._lock:
            self.require_open(what)
            self._in_flight += 1
        try:
            yield
        except Stop as stop:
            raise self.note(stop) from stop.__cause__
        except JournalError as error:
            raise self.note(AttemptLost(str(error))) from error
        finally:
            self._end()

    def _end(self) -> None:
        if threading.get_ident() != self._thread:
            database.close()
        with self._changed:
            self._in_flight -= 1
            self._changed.notify_all()

    def _send(self, tool: Tool[Any, Any], request: Any, key: str, wanted: Wanted | None) -> Any:
        kind = Reading if tool.effect is EffectClass.PURE else Sending
        asked = tool.asked(request)
        if asked.secrets:
            self._requests.append(asked)
        asking = kind(self._attempt, tool, asked, key=key)
        if wanted is not None and isinstance(asking, Reading):
            asking.wanted = wanted
        try:
            value = asking.perform()
            return asking.read if wanted is not None and isinstance(asking, Reading) else value
        except Stop as stop:
            raise self.note(stop) from stop.__cause__
        except (Refused, EffectExhausted):
            with self._lock:
                self._refused.append(key)
            raise
        except JournalError as error:
            raise self.note(AttemptLost(str(error))) from error
        finally:
            if asking.is_open:
                self.note(self._cut_short(f"what became of {key} could not be written down"))

    @property
    def stopped(self) -> Stop | None:
        """What has stopped the attempt, if anything: it takes no further call."""
        return self._stop

    def require_open(self, what: str) -> None:
        """Raise unless requests are taken: what stopped the step before, or ``CallRefused``."""
        if self._stop is not None:
            raise self._stop
        if self._barred is not None:
            raise CallRefused(
                f"Step {self._claimed.step_key!r} of run {self._claimed.run_id} takes no {what}: "
                f"{self._barred}. Nothing was sent."
            )

    def note(self, stop: Stop) -> Stop:
        """Remember the first reason to stop."""
        with self._lock:
            if self._stop is None:
                self._stop = stop
            return stop

    def _cut_short(self, why: str) -> EffectUnknown:
        return EffectUnknown(
            f"An effect of step {self._claimed.step_key!r} may have happened: {why}. The outside world is asked "
            f"before anything is sent again."
        )


def _require_read(found: Any) -> Read[Any]:
    if isinstance(found, Read):
        return found
    raise AssertionError("only a tool that changes nothing is read")
