"""A de-duplication ledger for a gateway of your own, in front of an API with neither key nor look-up.

    ledger = GatewayLedger(create_engine("postgresql+psycopg://..."))

    def handle_payment(request, key):  # key: the Idempotency-Key that came with it
        return ledger.once(key, digest_of(request), act=lambda: bank.pay(request))

The gateway then honours keys, and the tool that calls it is IDEMPOTENT. ``once`` answers a key that was done
from the ledger, and raises, each with an HTTP status that says it to a caller:

* ``KeyConflict`` (422): the key was used for another request. Nothing was done;
* ``InProgress`` (409, ``Retry-After``): another caller is at it right now;
* ``InDoubt`` (409): an owner died while acting and nobody can say what came of it. A person decides:
  ``doubtful``, then ``settle`` or ``release``;
* ``Displaced`` (409): this owner was taken over while acting. Its answer is kept as evidence.

An owner renews its lease while it acts. A dead one is taken over when the lease is over, under a higher fence,
and what it may have done is looked up when ``lookup`` is given: found, it is recorded; nothing there, and nothing
can land any more (``max_request_lifetime`` after the owner was lost), the act is made again.

**What it cannot close.** An API with neither key nor look-up leaves a gap that no ledger in front of it fills:
an owner that dies between sending and recording. The ledger makes it visible and never repeats blindly; that is
all. With a look-up, an owner that is *paused* inside ``act`` for longer than lease and ``max_request_lifetime``,
between its last instruction and the wire, may still send what was meanwhile found absent and made again.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

from sqlalchemy import Engine, MetaData
from sqlalchemy.exc import DBAPIError

from models.digests import digest as digest_of
from models.errors import OnwardError
from models.messages import describe
from models.values import decode, encode
from tasks.toolkit.gateway_rows import (
    Busy,
    Claim,
    Done,
    Doubtful,
    Other,
    Rows,
    Source,
    table,
)
from tasks.tools import Absent, Found, Looked, Refused, Undecided

__all__ = [
    "Displaced", "GatewayLedger", "GatewayRefusal", "InDoubt", "InProgress", "KeyConflict", "digest_of",
]  # fmt: skip

_TRIES = 5  #: claims that lost a race before the caller is told to come again
_PAUSES = (0.05, 0.2, 1.0, 2.0, 2.0)  #: seconds between tries to record an answer
#: Seconds for a renewal that hangs. One that comes later finds the row done, or delays its next owner once.
_JOIN_LIMIT = 5.0

Act: TypeAlias = Callable[[], Any]
Lookup: TypeAlias = Callable[[], Looked]


class GatewayRefusal(OnwardError):
    """The ledger did not let this call act. ``status`` is what a gateway may answer."""

    error_type = "gateway_refusal"
    status: ClassVar[int] = 409


class KeyConflict(GatewayRefusal):
    """The key was used for another request."""

    error_type = "idempotency_conflict"
    status = 422


class InProgress(GatewayRefusal):
    """Another caller is at it, or it can only be judged later: again in ``retry_after`` seconds."""

    error_type = "in_progress"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InDoubt(GatewayRefusal):
    """It may have happened, and only a person can say."""

    error_type = "in_doubt"


class Displaced(GatewayRefusal):
    """This owner's lease ran out while it acted. What it was answered is kept as evidence."""

    error_type = "displaced"


class GatewayLedger:
    """Any number of processes over one table of any PostgreSQL. See the module for its errors."""

    def __init__(
        self, engine: Engine, *, table_name: str = "gateway_ledger", schema: str | None = None,
        lease: timedelta = timedelta(seconds=30), max_request_lifetime: timedelta | None = None,
    ) -> None:  # fmt: skip
        """``max_request_lifetime``: how long after its owner was lost a request can still land.

        Undeclared means for ever: a look-up that finds nothing then leads to a person.
        """
        self._metadata = MetaData()
        self.table = table(table_name, schema, self._metadata)
        self._engine, self._lease, self._lifetime = engine, lease, max_request_lifetime
        owner = f"{socket.gethostname()}:{os.getpid()}"
        self._rows = Rows(engine, self.table, owner=owner, lease=lease)

    def create_table(self) -> None:
        """Make the table when it is missing. Its definition is ``table``, for migrations."""
        self._metadata.create_all(self._engine)

    def once(self, key: str, request_digest: str, *, act: Act, lookup: Lookup | None = None) -> Any:
        """Act at most once for this key; the answer, now or as it was recorded.

        ``act`` raises ``Refused`` (or ``NotSent``) when it certainly did not happen: the key is free again.
        Any other exception leaves it open. Answers are what a step may return.
        """
        sent = time.monotonic()
        claim = self._claim(key, request_digest, looks=lookup is not None)
        if isinstance(claim, Done):
            return decode(claim.answer)
        if claim.evidence is not None:
            return self._finish(claim, claim.evidence, "late_answer")
        if claim.landing is not None:
            found = self._look(claim, lookup, claim.landing)
            if isinstance(found, Found):
                return self._finish(claim, _encoded(found.result), "lookup")
            sent = time.monotonic()
            if not self._rows.act_again(claim):
                raise self._displaced(claim)
        return self._act(claim, act, sent=sent)

    def doubtful(self) -> list[dict[str, Any]]:
        """What waits for a person, or for a caller with a look-up."""
        return self._rows.doubtful()

    def settle(self, key: str, answer: Any, *, by: str, reason: str) -> None:
        """A person says that it happened, and what the answer was."""
        self._decide(key, by=by, reason=reason, answer=_encoded(answer))

    def release(self, key: str, *, by: str, reason: str) -> None:
        """A person says that it did not happen: the next caller acts."""
        self._decide(key, by=by, reason=reason, answer=None)

    def forget(self, older_than: timedelta) -> int:
        """Drop what was done so long ago. Afterwards its key is new: this is the gateway's key retention."""
        return self._rows.forget(older_than)

    def _claim(self, key: str, digest: str, *, looks: bool) -> Claim | Done:
        for _ in range(_TRIES):
            try:
                standing = self._rows.make(key, digest) or self._rows.take(
                    key, digest, lifetime=self._lifetime, looks=looks
                )
            except LookupError:
                continue  # another caller was faster; now the row says what he did
            match standing:
                case Claim() | Done():
                    return standing
                case Other():
                    raise KeyConflict(
                        f"The key {key!r} was used for another request. Nothing was done: send this one with a "
                        "key of its own."
                    )
                case Busy(seconds):
                    raise InProgress(
                        f"{key!r} is being worked on. Ask again in {seconds:.1f} s.",
                        retry_after=seconds,
                    )
                case Doubtful(reason):
                    raise self._in_doubt(key, reason)
        raise InProgress(f"{key!r} is wanted by many callers at once.", retry_after=1.0)

    def _look(self, claim: Claim, lookup: Lookup | None, landing: float) -> Found[Any] | Absent:
        """What became of an owner that is gone; raises unless that is certain."""
        if lookup is None:
            raise self._ask_person(claim, "its owner is gone, and there is no look-up")
        try:
            with self._renewed(claim):
                found = lookup()
        except BaseException as error:
            self._rows.doubt(claim, f"the look-up failed: {describe(error)}")
            raise
        match found:
            case Found():
                return found
            case Absent() if self._lifetime is None:
                raise self._ask_person(
                    claim,
                    "nothing was found, but it may land at any time: declare max_request_lifetime",
                )
            case Absent() if landing <= 0:
                return found
            case Undecided(reason, None):
                raise self._ask_person(claim, f"the look-up cannot tell: {reason}")
        again = found.again_in if isinstance(found, Undecided) else landing
        self._rows.doubt(claim, "it cannot be told yet")
        raise InProgress(
            f"The owner of {claim.key!r} is gone and its request may still land. Ask again in {again:.1f} s.",
            retry_after=again or 0.0,
        )

    def _act(self, claim: Claim, act: Act, *, sent: float) -> Any:
        if time.monotonic() - sent > self._lease.total_seconds():
            self._rows.free(claim, "paused before it began")
            raise InProgress(f"{claim.key!r} was claimed and not begun.", retry_after=0.0)
        try:
            with self._renewed(claim):
                answer = _encoded(act())
                return self._finish(claim, answer, "act")
        except GatewayRefusal:
            raise
        except Refused as error:
            self._rows.free(claim, describe(error))
            raise
        except BaseException as error:
            self._rows.doubt(claim, f"its act ended in {describe(error)}")
            raise

    def _finish(self, claim: Claim, answer: str, source: Source) -> Any:
        """Record an answer, through an outage of seconds: the write is repeated, never the act."""
        for pause in (*_PAUSES, None):
            try:
                if self._rows.finish(claim, answer, source):
                    return decode(answer)
                self._rows.keep_evidence(claim, answer)
                raise self._displaced(claim)
            except DBAPIError:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def _renewed(self, claim: Claim) -> Iterator[None]:
        """Renew the lease every third of it, until this ends or another has taken it."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._lease.total_seconds() / 3):
                try:
                    if not self._rows.renew(claim):
                        return
                except DBAPIError:
                    continue  # the lease may run out over it; nobody is worse off than without

        renewing = threading.Thread(target=renew, name=f"lease of {claim.key}", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join(_JOIN_LIMIT)

    def _decide(self, key: str, *, by: str, reason: str, answer: str | None) -> None:
        if not self._rows.decide(key, by=by, reason=reason, answer=answer):
            raise GatewayRefusal(
                f"{key!r} is not in doubt: it is unknown, done, or somebody is at it. Nothing was changed."
            )

    def _ask_person(self, claim: Claim, reason: str) -> GatewayRefusal:
        if not self._rows.ask_person(claim, reason):
            return self._displaced(claim)
        return self._in_doubt(claim.key, reason)

    def _in_doubt(self, key: str, reason: str) -> InDoubt:
        return InDoubt(
            f"Whether {key!r} happened is not known: {reason}. It is not done again; a person decides with "
            "settle(key, answer) or release(key)."
        )

    def _displaced(self, claim: Claim) -> Displaced:
        return Displaced(
            f"The lease on {claim.key!r} ran out and another caller has taken it over. What was answered here is "
            "kept as evidence."
        )


def _encoded(answer: Any) -> str:
    return encode(answer, subject="the answer")
