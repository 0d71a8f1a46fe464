"""Keeping what this process holds: one heartbeat thread, and a trust window on the monotonic clock.

The thread renews exactly the leases in memory, in one statement every heartbeat. A lease is trusted for
ttl - margin after its last successful renewal was *sent* (not answered): within that time no sweep can
have taken the step, whatever the database's clock says. Outside it no new effect may start.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    @contextmanager
    def hold(self, lease: Lease, *, sent_at: float) -> Iterator[Held]:
        """Keep a lease alive for the duration. ``sent_at``: when its claim was sent, monotonic."""
        held = Held(lease, _trusted_until(sent_at))
        with self._lock:
            self._held[id(held)] = held
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._beat, name="onward-heartbeat", daemon=True
                )
                self._thread.start()
        try:
            yield held
        finally:
            with self._lock:
                del self._held[id(held)]

    def renew_once(self) -> None:
        """Renew everything held now; a lease that was not renewed is lost."""
        with self._lock:
            held = list(self._held.values())
        if not held:
            return
        sent_at = time.monotonic()
        ours = steps.renew([one.lease for one in held], ttl=settings().lease_ttl)
        for one in held:
            if (one.lease.run_id, one.lease.branch, one.lease.token) in ours:
                one.trusted_until = _trusted_until(sent_at)
            else:
                one.lost = True

    def _beat(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(settings().heartbeat)
            try:
                self.renew_once()
            except Exception as error:
                _log.warning("Leases could not be renewed: %s. Trying again.", error)
                database.close()


def _trusted_until(sent_at: float) -> float:
    return sent_at + settings().lease_ttl - settings().trust_margin
