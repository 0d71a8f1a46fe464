"""What recovery does and costs, as SQL over the journal: so the figures survive every crash they count.

Counters are counts of insert-only rows and so only rise (until retention prunes them). Each statement
returns (label values ..., value) rows. `docs/metrics.md` defines every metric; a test compares the two.
"""

from dataclasses import dataclass
from typing import Literal, LiteralString

from models import database


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of samples. ``labels`` name the leading columns of the statement's rows."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...]
    statement: LiteralString


#: A step that lost an owner, and what became of it.
_LOST: LiteralString = """
WITH lost AS (
    SELECT DISTINCT run_id, step_key FROM attempt WHERE outcome IN ('expired', 'died')
), fates AS (
    SELECT CASE
        WHEN s.state IS NOT NULL THEN s.state
        WHEN l.state = 'failed' THEN 'failed' WHEN l.block_reason IS NOT NULL THEN 'blocked'
        ELSE 'open' END AS fate
    FROM lost
    LEFT JOIN step s ON s.run_id = lost.run_id AND s.step_key = lost.step_key
    LEFT JOIN live l ON l.run_id = lost.run_id AND l.step_key = lost.step_key
)"""

METRICS: tuple[Metric, ...] = (
    Metric(
        "onward_recovered_steps", "gauge",
        "Steps that lost an owner at least once, by what became of them.", ("fate",),
        f"{_LOST} SELECT fate, count(*) FROM fates GROUP BY fate",
    ),
    Metric(
        "onward_recovery_success_ratio", "gauge",
        "Of the steps that lost an owner and are decided, the share that completed.", (),
        f"""{_LOST} SELECT count(*) FILTER (WHERE fate = 'completed')::float8 / count(*) FROM fates
        WHERE fate IN ('completed', 'failed', 'blocked') HAVING count(*) > 0""",
    ),
    Metric(
        "onward_checkpoint_lag_seconds", "gauge",
        "Work that a crash now would cost: time since the claim of running steps, longest and together.",
        ("of",),
        """SELECT lag.of, lag.seconds FROM (
            SELECT coalesce(max(extract(epoch FROM onward_now() - claimed_at)), 0) AS longest,
                   coalesce(sum(extract(epoch FROM onward_now() - claimed_at)), 0) AS together
            FROM live WHERE owner IS NOT NULL) found,
        LATERAL (VALUES ('longest', found.longest), ('together', found.together)) lag(of, seconds)""",
    ),
    Metric(
        "onward_unknown_steps", "gauge",
        "Steps whose owner is gone and whose outcome is not decided yet.", (),
        "SELECT count(*) FROM live WHERE state = 'unknown'",
    ),
    Metric(
        "onward_unknown_effects", "gauge",
        "Effects that may have happened, by what they wait for: a look-up, or a person.", ("waits_for",),
        """SELECT waits.for_what, count(e.key) FROM (VALUES ('lookup'), ('person')) waits(for_what)
        LEFT JOIN effect e ON e.state = 'unknown'
            AND (e.person IS NOT NULL) = (waits.for_what = 'person') GROUP BY 1""",
    ),
    Metric(
        "onward_effects_total", "counter",
        "Effects settled, by class and by who said so.", ("effect_class", "source"),
        """SELECT effect_class, source, count(*) FROM effect_settlement WHERE outcome = 'settled'
        AND undoes IS NULL GROUP BY 1, 2""",
    ),
    Metric(
        "onward_duplicate_effects_prevented_total", "counter",
        "Effects that a plain retry would have made twice: found by asking, replayed from the record, or sent "
        "again under a key that the provider honours.", ("how",),
        """SELECT how, count(*) FROM (
            SELECT CASE WHEN e.source IN ('lookup', 'late_answer') THEN 'found'
                        WHEN e.effect_class = 'idempotent' AND e.sends > 1 THEN 'same_key'
                        ELSE 'replayed' END AS how
            FROM effect_settlement e LEFT JOIN step s ON s.run_id = e.run_id AND s.step_key = e.step_key
            WHERE e.outcome = 'settled' AND e.effect_class <> 'pure' AND (
                e.source IN ('lookup', 'late_answer') OR s.token > e.token
                OR e.effect_class = 'idempotent' AND e.sends > 1)) prevented GROUP BY how""",
    ),
    Metric(
        "onward_duplicate_messages_total", "counter",
        "Messages that came for work already claimed or done, and were dropped.", (),
        "SELECT coalesce(sum(duplicates), 0) FROM run",
    ),
    Metric(
        "onward_compensations", "gauge",
        "Runs whose effects are being undone, could not be, or were.", ("state",),
        "SELECT state, count(*) FROM compensation GROUP BY state",
    ),
    Metric(
        "onward_effects_undone_total", "counter", "Effects undone.", (),
        "SELECT count(*) FROM effect_settlement WHERE undoes IS NOT NULL AND outcome = 'settled'",
    ),
    Metric(
        "onward_lost_owners_total", "counter",
        "Claims that ended without their holder's word, by how it was noticed.", ("noticed",),
        "SELECT outcome, count(*) FROM attempt WHERE outcome IN ('expired', 'died') GROUP BY outcome",
    ),
    Metric(
        "onward_live_owner_takeovers_total", "counter",
        "Steps taken from an owner that was alive: it came back later with a result.", (),
        """SELECT count(*) FROM attempt late WHERE late.outcome = 'superseded' AND EXISTS (
            SELECT 1 FROM attempt a WHERE a.run_id = late.run_id AND a.step_key = late.step_key
            AND a.token = late.token AND a.outcome = 'expired')""",
    ),
    Metric(
        "onward_recovery_extra_seconds_total", "counter",
        "Time that claims without a result had worked: what crashes and shutdowns cost again.", (),
        """SELECT coalesce(sum(extract(epoch FROM ended_at - started_at)), 0) FROM attempt
        WHERE outcome IN ('expired', 'died', 'interrupted') AND started_at IS NOT NULL
        AND coalesce(error_type NOT IN ('throttled', 'call_postponed'), true)""",
    ),
    Metric(
        "onward_recovery_extra_tokens_total", "counter",
        "Tokens charged for answers of model calls that were lost with their owners.", (),
        "SELECT coalesce(sum(tokens), 0) FROM spend WHERE recovery",
    ),
    Metric(
        "onward_recovery_extra_cost_dollars_total", "counter",
        "What those answers cost, where a price is known.", (),
        "SELECT coalesce(sum(cost), 0) FROM spend WHERE recovery",
    ),
    Metric(
        "onward_calls_total", "counter",
        "Model calls and other reads on record, by how the answer ended.", ("kind", "state"),
        "SELECT kind, state, count(*) FROM recorded_call GROUP BY 1, 2",
    ),
    Metric(
        "onward_spent_tokens_total", "counter", "Tokens charged, lost answers included.", (),
        "SELECT coalesce(sum(tokens), 0) FROM spend",
    ),
    Metric(
        "onward_spent_cost_dollars_total", "counter",
        "What model calls cost, lost answers included, where a price is known.", (),
        "SELECT coalesce(sum(cost), 0) FROM spend",
    ),
    Metric(
        "onward_reserved_cost_dollars", "gauge",
        "US dollars set aside for requests that may be on their way.", (),
        "SELECT coalesce(sum(cost), 0) FROM hold",
    ),
    Metric(
        "onward_endpoint_wait_seconds", "gauge",
        "Seconds until an endpoint that asked for a pause, or does not answer, is asked again.", ("endpoint",),
        """SELECT endpoint, greatest(0, extract(epoch FROM not_before - onward_now())) FROM endpoint
        WHERE since IS NOT NULL AND not_before IS NOT NULL""",
    ),
    Metric(
        "onward_runs", "gauge", "Runs by state.", ("state",),
        "SELECT state, count(*) FROM run GROUP BY state",
    ),
    Metric(
        "onward_live_steps", "gauge", "Steps in motion, by state.", ("state",),
        "SELECT state, count(*) FROM live WHERE missing = 0 GROUP BY state",
    ),
    Metric(
        "onward_pass_age_seconds", "gauge",
        "Age of the last complete run of each periodic job; the sweep's is the health of recovery.",
        ("job",),
        """SELECT name, extract(epoch FROM onward_now() - completed_at) FROM pass
        WHERE completed_at IS NOT NULL""",
    ),
)  # fmt: skip


def read(metric: Metric) -> list[tuple[tuple[str, ...], float]]:
    """(label values, value) of every sample that the journal has now."""
    return [
        (tuple(str(label) for label in row[:-1]), float(row[-1]))
        for row in database.fetch(metric.statement, {})
    ]
