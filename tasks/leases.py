"""Keeping what this process holds: one heartbeat thread, and a trust window on the monotonic clock.

The thread renews exactly the leases in memory, in one statement every heartbeat. A lease is trusted for
ttl - margin after its last successful renewal was *sent* (not answered): within that time no sweep can
have taken the step, whatever the database's clock says. Outside it no new effect may start.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from models import database
from models.journal import steps
from models.journal.errors import LeaseLost
from models.journal.values import Lease
from models.settings import settings

_log = logging.getLogger("onward.lease")


@dataclass(slots=True)
class Held:
    """A lease this process holds and how long it may believe in it."""

    lease: Lease
    trusted_until: float
    renewed_until: float | None = None  #: then it is given up, though its body may still run
    lost: bool = field(default=False)

    def require_trust(self) -> None:
        """Raise ``LeaseLost`` unless the step is certainly still ours."""
        if self.lost or time.monotonic() > self.trusted_until:
            why = "was taken" if self.lost else "could not be renewed in time"
            raise LeaseLost(
                f"The lease on step {self.lease.step_key!r} of run {self.lease.run_id} {why}: no new effect "
                f"starts here. The step goes on under its next attempt."
            )


class Keeper:
    """The leases of one process and the thread that renews them."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(
        self, lease: Lease, *, sent_at: float, at_most: float | None = None
    ) -> AbstractContextManager[Held]:
        """Keep a lease alive for the duration. ``sent_at``: when its claim was sent, monotonic.

        ``at_most``: seconds after which it is renewed no longer, for a body that nothing can end.
        """
        limit = None if at_most is None else sent_at + at_most
        return _Keeping(self, Held(lease, _trusted_until(sent_at), limit))

    def begin(self, held: Held) -> None:
        """Renew it from now on."""
        with self._lock:
            self._held[id(held)] = held
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._beat, name="onward-heartbeat", daemon=True
                )
                self._thread.start()

    def end(self, held: Held) -> None:
        """Renew it no longer."""
        with self._lock:
            del self._held[id(held)]

    def renew_once(self) -> None:
        """Renew everything held now; a lease that was not renewed is lost."""
        with self._lock:
            held = list(self._held.values())
        if not held:
            return
        sent_at = time.monotonic()
        for one in held:
            one.lost = one.lost or _is_over(one, sent_at)
        ours = steps.renew([one.lease for one in held if not one.lost], ttl=settings().lease_ttl)
        for one in held:
            if (one.lease.run_id, one.lease.branch, one.lease.token) in ours:
                one.trusted_until = _trusted_until(sent_at)
            else:
                one.lost = True

    def _beat(self) -> None:
        database.keep_own()
        pause = threading.Event()
        while True:
            pause.wait(settings().heartbeat)
            try:
                self.renew_once()
            except Exception as error:
                _log.warning("Leases could not be renewed: %s. Trying again.", error)
                database.close()


class _Keeping:
    """One lease, kept for the length of a block. Every step enters one: no generator, half the time."""

    __slots__ = ("_held", "_keeper")

    def __init__(self, keeper: Keeper, held: Held) -> None:
        self._keeper, self._held = keeper, held

    def __enter__(self) -> Held:
        self._keeper.begin(self._held)
        return self._held

    def __exit__(self, *_: object) -> None:
        self._keeper.end(self._held)


def _is_over(held: Held, now: float) -> bool:
    """Its step is the next attempt's once the lease has ended, and what still runs here is fenced."""
    if held.renewed_until is None or now < held.renewed_until:
        return False
    _log.error(
        "Step %s of run %s is over its time limit, and this pool cannot end it: its lease is given up.",
        held.lease.step_key, held.lease.run_id,
    )  # fmt: skip
    return True


def _trusted_until(sent_at: float) -> float:
    return sent_at + settings().lease_ttl - settings().trust_margin
