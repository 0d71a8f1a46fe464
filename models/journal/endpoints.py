"""When an endpoint may be asked, over the whole cluster: pauses it asked for, failures, and its limits.

One row an endpoint. Who waits longer than a moment gives its step back: no worker, no lease, no attempt.
"""

from datetime import datetime
from typing import LiteralString

from models import database
from models.journal.call_values import EndpointStanding

LONGEST_STRIKE = 60.0  #: seconds
STRIKE_SPREAD = 60.0  #: seconds over which a crowd comes back after a failure
_BURST = 1.0  #: seconds; so much of the allowance may leave at once, at least one request

#: Seconds until a caller comes back. Multiples of the golden ratio lie evenly however many there are, where random
#: instants gather: of 100 who wait, some second would have a tenth. They are spread over a quarter of the pause, and
#: over ten seconds for each of them up to ``spread``, so a few wait for little and a crowd is no crowd again.
#: The pause's own microseconds are where the row of instants begins.
_WAIT: LiteralString = """
    extract(epoch FROM not_before - onward_now())::float8
    + mod(waiters * 0.6180339887498949 + extract(microseconds FROM not_before) / 1e6, 1)::float8
    * least(spread, greatest(0.25 * extract(epoch FROM not_before - onward_now())::float8, 10 * (waiters - 1)))"""

_JOINED: LiteralString = "CASE WHEN e.not_before > onward_now() THEN e.waiters + 1 ELSE 1 END"


def pause(endpoint: str, *, seconds: float, spread: float, reason: str) -> float:
    """Let nobody ask for so long; returns the seconds this caller waits, its own jitter included.

    A pause is never cut short by a shorter one.
    """
    row = database.fetch_one(
        f"""
        INSERT INTO endpoint AS e (endpoint, not_before, spread, waiters, reason, since)
        VALUES (%(endpoint)s, onward_now() + make_interval(secs => %(seconds)s), %(spread)s, 1, %(reason)s,
                onward_now())
        ON CONFLICT (endpoint) DO UPDATE SET
            not_before = greatest(e.not_before, excluded.not_before),
            spread = CASE WHEN e.not_before > excluded.not_before THEN e.spread ELSE excluded.spread END,
            waiters = {_JOINED},
            reason = CASE WHEN e.not_before > excluded.not_before THEN e.reason ELSE excluded.reason END,
            since = coalesce(e.since, excluded.since)
        RETURNING {_WAIT}""",
        {"endpoint": endpoint, "seconds": seconds, "spread": spread, "reason": reason},
    )
    return max(0.0, float(row[0])) if row else seconds


def join(endpoint: str) -> float:
    """Wait with the others for a pause to end: seconds until this caller's own instant. 0: there is none."""
    row = database.fetch_one(
        f"UPDATE endpoint e SET waiters = e.waiters + 1"
        f" WHERE endpoint = %(endpoint)s AND not_before > onward_now() RETURNING {_WAIT}",
        {"endpoint": endpoint},
    )
    return max(0.0, float(row[0])) if row else 0.0


def time_until(instant: datetime) -> float:
    """Seconds from now, by the journal's clock, to an instant that another clock has named; below 0: it is over."""
    row = database.fetch_one(
        "SELECT extract(epoch FROM %(instant)s::timestamptz - onward_now())::float8",
        {"instant": instant},
    )
    return float(row[0]) if row else 0.0


def strike(endpoint: str, *, reason: str) -> float:
    """Count a failure and let nobody ask for 1, 2, 4 .. 60 s; returns how long this caller waits.

    Requests that were under way together fail together: while nobody may ask, no failure counts again.
    """
    row = database.fetch_one(
        f"""
        INSERT INTO endpoint AS e (endpoint, not_before, spread, waiters, reason, strikes, since)
        VALUES (%(endpoint)s, onward_now() + interval '1 second', %(spread)s, 1, %(reason)s, 1, onward_now())
        ON CONFLICT (endpoint) DO UPDATE SET (not_before, spread, strikes, reason) = (
            SELECT onward_now() + make_interval(secs => least(%(longest)s::float8, 2 ^ least(e.strikes, 16))),
                   %(spread)s::float8, e.strikes + 1, excluded.reason
            WHERE coalesce(e.not_before <= onward_now(), true)
            UNION ALL
            SELECT e.not_before, e.spread, e.strikes, e.reason WHERE e.not_before > onward_now()
        ), waiters = {_JOINED}, since = coalesce(e.since, onward_now())
        RETURNING {_WAIT}""",
        {
            "endpoint": endpoint, "reason": reason, "spread": STRIKE_SPREAD, "longest": LONGEST_STRIKE,
        },
    )  # fmt: skip
    return max(0.0, float(row[0])) if row else LONGEST_STRIKE


#: A level below 0 is a queue. What is taken is taken before it is waited for, so nobody overtakes; and a request
#: of more tokens than fit into a minute is let through in its turn, and paid for by those behind it.
_TAKE: LiteralString = """
WITH seen AS MATERIALIZED (
    SELECT * FROM endpoint WHERE endpoint = %(endpoint)s FOR NO KEY UPDATE
), asked AS (
    SELECT onward_now() AS now, %(requests)s::float8 / 60 AS request_rate, %(tokens)s::float8 / 60 AS token_rate
), refilled AS (
    SELECT a.*,
        CASE WHEN s.not_before > a.now
             THEN extract(epoch FROM s.not_before - a.now)::float8 + random() * s.spread END AS paused,
        least(greatest(1, a.request_rate * %(burst)s) - 1,
              coalesce(s.request_level, 'infinity') + a.request_rate * gone.seconds) AS requests,
        least(a.token_rate * %(burst)s,
              coalesce(s.token_level, 'infinity') + a.token_rate * gone.seconds) AS tokens
    FROM seen s, asked a, LATERAL (
        SELECT greatest(0, coalesce(extract(epoch FROM a.now - s.level_at), 0))::float8 AS seconds) gone
), waits AS (
    SELECT r.*, greatest(0, r.paused, -r.requests / r.request_rate, -r.tokens / r.token_rate) AS wait
    FROM refilled r
), taken AS (
    UPDATE endpoint e SET level_at = w.now,
        request_level = CASE WHEN w.request_rate IS NOT NULL THEN w.requests - 1 END,
        token_level = CASE WHEN w.token_rate IS NOT NULL THEN w.tokens - %(amount)s END
    FROM waits w WHERE e.endpoint = %(endpoint)s AND w.wait <= %(at_most)s
)
SELECT wait FROM waits"""


def take(
    endpoint: str, *, tokens: int, requests_per_minute: float | None,
    tokens_per_minute: float | None, at_most: float,
) -> float:  # fmt: skip
    """Seconds until this request may leave. More than ``at_most``: that long is the wait, no place was taken.

    Both limits hold over the whole cluster, on average over a minute: a second's worth may leave at once. A
    wait for a pause to end has the caller's own jitter in it.
    """
    params: dict[str, object] = {
        "endpoint": endpoint, "requests": requests_per_minute, "tokens": tokens_per_minute,
        "amount": tokens, "at_most": at_most, "burst": _BURST,
    }  # fmt: skip
    if requests_per_minute is None and tokens_per_minute is None:
        return join(endpoint)
    row = database.fetch_one(_TAKE, params)
    if row is None:
        database.fetch(
            "INSERT INTO endpoint (endpoint) VALUES (%(endpoint)s) ON CONFLICT DO NOTHING", params
        )
        row = database.fetch_one(_TAKE, params)
    return float(row[0]) if row else 0.0


def clear(endpoint: str) -> None:
    """It has answered. A pause that still lasts was asked for by a later answer, and stays."""
    database.fetch(
        "UPDATE endpoint SET strikes = 0, since = NULL, reason = NULL, not_before = NULL, spread = 0"
        " WHERE endpoint = %(endpoint)s AND since IS NOT NULL"
        " AND coalesce(not_before <= onward_now(), true)",
        {"endpoint": endpoint},
    )


_STANDING: LiteralString = """
SELECT greatest(0, coalesce(extract(epoch FROM not_before - onward_now()), 0))::float8, spread, reason, since,
       strikes
FROM endpoint WHERE endpoint = %(endpoint)s"""


def standing(endpoint: str) -> EndpointStanding:
    """Whether it may be asked, and since when it has not answered; one never heard of answers."""
    row = database.fetch_one(_STANDING, {"endpoint": endpoint})
    wait, spread, reason, since, strikes = row or (0.0, 0.0, None, None, 0)
    return EndpointStanding(
        endpoint=endpoint, wait=wait, spread=spread, reason=reason, since=since, strikes=strikes
    )
