"""Noticing that the journal went back in time, before it is believed.

Each beat raises the journal's count and then tells the broker. The broker therefore never remembers more than
the journal has, unless commits were lost: by a restore, or by a fail-over to a standby that lacked them. What
the broker remembers is read first and compared under a lock, so beats of several processes at once never
look like a loss. A broker that remembers nothing (flushed, new, not Redis) says nothing.

A restore shows in the count. A fail-over may lose what came after the last beat, and shows in the server:
another system or timeline is taken for a loss, since nothing can tell that there was none.

The watch beats every few seconds, and every worker once before it takes its first message, since a restored
journal's messages are still in the broker.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import redis
from celery import signals

from models import database
from models.journal import rewinds
from models.journal.rewinds import Pulse, Rewind, Server
from models.settings import settings

_log = logging.getLogger("onward.rewind")
_TIMEOUT = 3.0  #: seconds that the broker gets to answer
_UNREACHABLE = (redis.RedisError, OSError, ValueError)
_REDIS = ("redis://", "rediss://", "valkey://", "valkeys://")


def beat_once() -> Rewind | None:
    """Compare journal and broker, declare a rewind where they show one, and beat."""
    name = rewinds.journal_name()
    remembered = recall(name) if name else None
    now = rewinds.server()
    with rewinds.pulse_held() as last:
        reason = judge(last, remembered, now=now)
        found = None
        if reason is not None and last is not None:
            found = rewinds.declare_seen(last.at, reason=reason)
        name, beat = rewinds.raise_pulse(now, above=remembered or 0)
    remember(name, beat)
    if found is not None:
        _log.error(
            "The journal went back in time to %s: %s. %d unfinished runs ask before they send.",
            found.rewound_to.isoformat(), reason, found.runs,
        )  # fmt: skip
    return found


def acknowledge() -> None:
    """Beat from here: a person has declared what journal and broker show, and it is not declared twice."""
    name = rewinds.journal_name()
    remembered = recall(name) if name else None
    now = rewinds.server()
    with rewinds.pulse_held():
        name, beat = rewinds.raise_pulse(now, above=remembered or 0)
    remember(name, beat)


def judge(last: Pulse | None, remembered: int | None, *, now: Server) -> str | None:
    """Pure: what shows that commits were lost, in words; None when nothing does."""
    if last is None:
        return None  # the first beat of a journal
    if remembered is not None and remembered > last.beat:
        return f"the broker remembers beat {remembered} of this journal, whose own last beat is {last.beat}"
    if not now.system_id or not last.server.system_id:
        return None
    if last.server.system_id != now.system_id:
        return (
            f"it is on another database system ({now.system_id}) than at its last beat "
            f"({last.server.system_id}), and what it lacks of that one is not known"
        )
    if last.server.timeline != now.timeline:
        return (
            f"its server is on timeline {now.timeline} and was on {last.server.timeline} at its last beat: a "
            "standby took over or a backup was restored, and what was lost is not known"
        )
    return None


def recall(name: str) -> int | None:
    """The beat that the broker remembers; None when there is none, or when it cannot be asked."""
    try:
        with _broker() as client:
            told = client.get(_key(name)) if client else None
        return int(told) if told is not None else None
    except _UNREACHABLE as error:
        _log.warning("The broker could not be asked what it remembers of the journal: %s", error)
        return None


def remember(name: str, beat: int) -> None:
    """Tell the broker. One that does not hear it remembers an older beat, which shows less and no more."""
    try:
        with _broker() as client:
            if client:
                client.set(_key(name), beat)
    except _UNREACHABLE as error:
        _log.warning("The broker could not be told the journal's beat: %s", error)


def _key(name: str) -> str:
    return f"{settings().key_prefix}onward.pulse.{name}"


@contextmanager
def _broker() -> "Iterator[redis.Redis | None]":
    url = settings().broker_url
    if not url.startswith(_REDIS):
        _tell_once("The broker is not Redis or Valkey: it remembers nothing of the journal.")
        yield None
        return
    with redis.Redis.from_url(
        url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
        socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT,
    ) as client:  # fmt: skip
        yield client


@lru_cache
def _tell_once(sentence: str) -> None:
    _log.info(sentence)


def beat_before_work(**_: object) -> None:
    """What cannot be compared now is compared by the watch."""
    try:
        beat_once()
    except Exception as error:
        _log.warning("The journal's pulse could not be taken at this worker's start: %s", error)
    finally:
        database.close()


signals.celeryd_after_setup.connect(beat_before_work, weak=False)
