"""The figures of a session: a line while it goes on, tables at its end, ``docs/results/reliability.md``."""

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine
from models import database
from tests.reliability.judging import Fell, Way
from tests.reliability.kills import BEFORE, Instant
from tests.reliability.session import Outcome
from tests.reliability.stage import CONCURRENCY, TIMES, WORKERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "reliability.md"

LEASE = TIMES["ONWARD_LEASE_TTL"]

_INSTANTS = tuple(instant for instant in Instant if instant not in BEFORE)

_INTRODUCTION = """\
A kill counts when it is a SIGKILL of the Celery pool child that carries the step and falls between an effect and
its settlement: the service has applied the effect, and its answer is not committed in the journal. Where it fell is
not taken from the plan but read off three clocks of one machine: the service's (applied), the killer's (killed),
PostgreSQL's (settlement written). Kills that did not fire, or fell elsewhere, are not counted; the session goes on
until the number is reached, and fails if it is not.

Everything is real: PostgreSQL, Valkey, {workers} Celery workers of {concurrency} processes, and the fake external
service (`ops/testing/outside`) as a process of its own with a durable ledger, which alone decides what happened. For
IDEMPOTENT it honours the key; for QUERYABLE and ONCE it acts as often as it is asked. Each run has two effects and
one or two kills; the kinds of instants are equal in number, their order and the moments within are drawn by seed.
"""

_READING = """\
* *twice*: the service made more than one of one intent. *lost*: settled without being there, there without being known,
  or in doubt without anybody asked. *otherwise wrong*: another key, a step that was given something else than what is
  there, a person asked for no reason, a run not at rest, a broken invariant (I2 to I8, `tests/support/invariants.py`).
* *waits for a person*: ONCE can neither be repeated nor asked. Afterwards each of them was told what the service shows
  (found, or absent), as `onward effects resolve` does: every run was then completed, every effect there exactly once.
* *its own COMMIT*: the process died with the COMMIT sent, and PostgreSQL carried it out. *done again*: IDEMPOTENT under
  its key, PURE simply asked again, TRANSACTIONAL in another transaction, the first having left no row.
* *recovery*: from the SIGKILL until a step of the run was claimed again, or a person was asked. A step's second death
  waits a second on purpose; what may still arrive (E1, P2 of QUERYABLE) is waited for as long as its tool declares.
  Now and then Celery hands the message of a process that died early to another one instead of telling of its death:
  the message is dropped, since the step is still somebody's, and the lease decides, {lease} s here.
* PURE has no effect, and TRANSACTIONAL none outside the journal's database: they are here as controls.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """When, where and how."""

    command: str
    seed: int
    kills: int
    deaths: int  #: of children by SIGKILL, as the main processes of the workers have seen them
    load: tuple[float, float]  #: of the machine before and after
    today: str
    postgres: str
    valkey: str


def say(line: str) -> None:
    """To the terminal, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def line(outcome: Outcome) -> str:
    """One kind that is over."""
    good = "as promised" if not outcome.violations else f"{len(outcome.violations)} VIOLATIONS"
    return (
        f"{outcome.kind}: {len(outcome.verdicts)} runs, {len(outcome.shots)} kills fired, "
        f"{len(outcome.between)} between effect and settlement, in {outcome.seconds:.0f} s: {good}"
    )


def show(outcomes: Sequence[Outcome], circumstances: Circumstances) -> None:
    """The tables, and every violation in words."""
    say("\n".join(("", *kills_table(outcomes), "", *outcomes_table(outcomes), "")))
    say(_fired(outcomes, circumstances))
    for outcome in outcomes:
        for violation in outcome.violations:
            say(f"VIOLATION {violation}")


def write(outcomes: Sequence[Outcome], circumstances: Circumstances) -> None:
    """Replace the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(_page(outcomes, circumstances)) + "\n")
    say(f"written to {PAGE}")


def unseen(outcomes: Sequence[Outcome], circumstances: Circumstances) -> int:
    """Kills that are told of here and of which no worker has seen a death: none."""
    return max(0, sum(len(outcome.shots) for outcome in outcomes) - circumstances.deaths)


def kills_table(outcomes: Iterable[Outcome]) -> list[str]:
    """Markdown: where the kills fell."""
    rows = []
    for outcome in outcomes:
        fell = [shot.fell for shot in outcome.shots]
        rows.append(
            (
                outcome.kind.upper(), len(outcome.verdicts), len(fell), f"**{len(outcome.between)}**",
                *(outcome.landed(instant) for instant in _INSTANTS),
                fell.count(Fell.BEFORE), fell.count(Fell.AFTER),
            )
        )  # fmt: skip
    head = (
        "class", "runs", "SIGKILLs fired", "between", "P3: service holds the answer", "answer on its way",
        "E4: answer in memory", "E5: COMMIT sent", "P4: rows written", "P5: their COMMIT sent",
        "before the effect", "after the settlement",
    )  # fmt: skip
    return _table(head, rows)


def outcomes_table(outcomes: Iterable[Outcome]) -> list[str]:
    """Markdown: what became of them."""
    rows = []
    for outcome in outcomes:
        ways = outcome.ways()
        twice, lost, wrong = _counts(outcome)
        rows.append(
            (
                outcome.kind.upper(), *(ways[way] for way in _WAYS), f"**{twice}**", f"**{lost}**", wrong,
                _spread(outcome.recoveries()), _spread(outcome.recoveries(before=True)),
                f"{outcome.seconds:.0f}",
            )
        )  # fmt: skip
    head = (
        "class", *_WAYS, "twice", "lost", "otherwise wrong", "recovery s, median / longest",
        "of kills before the effect", "seconds",
    )  # fmt: skip
    return _table(head, rows)


_WAYS = (Way.COMMIT, Way.AGAIN, Way.LOOKUP, Way.LATE, Way.WAITS)


def today() -> str:
    """By the clock of the journal's database."""
    return _ask("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC'")


def postgres() -> str:
    return _ask("SELECT current_setting('server_version')")


def valkey(broker: Any) -> str:
    told = broker.info("server")
    return str(told.get("valkey_version") or told["redis_version"])


def _ask(statement: Any) -> str:
    row = database.fetch_one(statement, {})
    return str(row[0]) if row else ""


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.1f} / {max(seconds):.1f}" if seconds else ""


def _counts(outcome: Outcome) -> tuple[int, int, int]:
    twice = sum(len(verdict.twice) for verdict in outcome.verdicts)
    lost = sum(len(verdict.lost) for verdict in outcome.verdicts)
    return twice, lost, len(outcome.violations) - twice - lost


def _fired(outcomes: Sequence[Outcome], circumstances: Circumstances) -> str:
    shots = sum(len(outcome.shots) for outcome in outcomes)
    by_lease = sum(outcome.by_lease for outcome in outcomes)
    told = [
        f"; a person then said what became of {outcome.told} effects of {outcome.kind.upper()}"
        for outcome in outcomes
        if outcome.told
    ]
    return (
        f"{shots} SIGKILLs fired, and the workers saw {circumstances.deaths} of their processes die of SIGKILL "
        f"({by_lease} of the steps were given up by their lease){''.join(told)}"
    )


def _page(outcomes: Sequence[Outcome], circumstances: Circumstances) -> list[str]:
    before, after = circumstances.load
    return [
        "# Reliability",
        "",
        f"* {circumstances.today}, commit {machine.commit()}, `{circumstances.command}`, seed {circumstances.seed}; "
        f'anyone can repeat it: `make reliability ARGS="--kills {circumstances.kills}"`',
        f"* {os.cpu_count()} cores ({machine.processor()}), {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}; load average {before:.1f} when the session began and {after:.1f} when it "
        "ended, its own included",
        f"* PostgreSQL {circumstances.postgres} (fsync and synchronous_commit on), Valkey {circumstances.valkey}, "
        f"Celery {version('celery')}, psycopg {version('psycopg')}",
        f"* {_fired(outcomes, circumstances)}",
        "",
        _INTRODUCTION.format(workers=WORKERS, concurrency=CONCURRENCY),
        "## The kills",
        "",
        *kills_table(outcomes),
        "",
        "## What became of what was killed between effect and settlement",
        "",
        *outcomes_table(outcomes),
        "",
        _READING.format(lease=LEASE).rstrip(),
    ]


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]
