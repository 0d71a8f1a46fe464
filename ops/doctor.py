"""What often goes wrong with a deployment, looked at one by one: each with a sentence and what to do."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psycopg
import redis
from pydantic import ValidationError

from models.errors import OnwardError
from models.journal import overview, reads
from models.messages import one_line
from models.settings import settings
from ops import schema, shadowing
from recovery import watch
from tasks import registry

_SKEW = 5.0  #: seconds between two clocks that deserve a word, though nothing depends on them
_BROKER_TIMEOUT = 3.0


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"  #: works, and will surprise somebody
    FAIL = "fail"  #: does not work


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    verdict: Verdict
    sentence: str
    advice: str = ""


def examine() -> list[Check]:
    """Every check, in the order in which one depends on another."""
    checks = [check_packages()]
    try:
        settings()
    except ValidationError as error:
        told = one_line("; ".join(problem["msg"] for problem in error.errors()))
        return [*checks, Check("settings", Verdict.FAIL, told, "Correct the ONWARD_* variables.")]
    checks += [check_leases(), check_agents(), check_visibility(), *_of_database(), *_of_broker()]
    return checks


def check_packages() -> Check:
    """Do our names lead to our packages, here and for a worker that is started here?"""
    problem = shadowing.shadowed_here() or shadowing.shadowed_in(Path.cwd())
    if problem:
        return Check("packages", Verdict.FAIL, problem)
    return Check(
        "packages", Verdict.OK, f"tasks, models, recovery and ops are those of {shadowing.ROOT}."
    )


def check_leases() -> Check:
    """Do lease, heartbeat and sweep leave room for one late beat, and recovery soon after a loss?"""
    ttl, beat, period = settings().lease_ttl, settings().heartbeat, settings().sweep_period
    told = f"A lease lasts {ttl:g} s, is renewed every {beat:g} s and missed by a sweep every {period:g} s."
    if period > ttl:
        return Check(
            "leases", Verdict.WARN, told, "Sweep more often than a lease lasts (ONWARD_SWEEP_PERIOD)."
        )  # fmt: skip
    if ttl < 5:
        return Check(
            "leases", Verdict.WARN, told, "Below 5 s a busy machine loses healthy steps (ONWARD_LEASE_TTL)."
        )  # fmt: skip
    return Check("leases", Verdict.OK, told)


def check_agents() -> Check:
    """Can the packages with workflows be loaded here?"""
    try:
        loaded = registry.load_agents()
    except OnwardError as error:
        return Check(
            "agents", Verdict.FAIL, f"{error}.", "Correct ONWARD_AGENTS or install the package."
        )
    if not loaded:
        return Check(
            "agents", Verdict.WARN, "No workflow is loaded.", "Name your packages in ONWARD_AGENTS."
        )
    names = ", ".join(sorted(f"{one.name} version {one.version}" for one in loaded))
    return Check("agents", Verdict.OK, f"Loaded: {names}.")


def check_visibility() -> Check:
    """Does Redis hold a message back for longer than the longest step may take?"""
    limits = [settings().step_time_limit]
    limits += [
        bound.time_limit for flow in registry.workflows().values() for bound in flow.steps.values()
    ]
    longest, held = max(limits), settings().visibility_timeout
    told = f"An unacked message is handed out again after {held:.0f} s; the longest step may take {longest:.0f} s."
    if held <= longest + settings().shutdown_grace:
        return Check(
            "visibility", Verdict.FAIL, told, "Raise ONWARD_STEP_TIME_LIMIT to the longest step's limit, or a "
            "step is delivered again while it runs.",
        )  # fmt: skip
    return Check("visibility", Verdict.OK, told)


def _of_database() -> Iterator[Check]:
    try:
        offset = _clock_offset()
        found = schema.look()
    except (OnwardError, psycopg.Error) as error:
        advice = (
            "Start it, or correct ONWARD_DATABASE_URL; nothing else about the journal was checked."
        )
        yield Check("database", Verdict.FAIL, one_line(str(error)), advice)
        return
    yield Check("database", Verdict.OK, "The journal's database answers.")
    ahead = "ahead of" if offset > 0 else "behind"
    told = f"Its clock is {abs(offset):.1f} s {ahead} this machine's; all times in the journal are its own."
    advice = "Nothing depends on it, but logs will not line up." if abs(offset) > _SKEW else ""
    yield Check("clock", Verdict.OK, told, advice)
    yield Check("schema", Verdict.OK if found.fits else Verdict.FAIL, found.sentence)
    if found.fits:
        yield check_sweep()
        yield from check_queues()


def check_sweep() -> Check:
    """Is recovery alive?"""
    healthy, sentence = watch.sweep_health()
    return Check("sweep", Verdict.OK if healthy else Verdict.FAIL, sentence)


def check_queues() -> Iterator[Check]:
    """Does a living worker serve every queue of the loaded workflows, and every queue with work in it?"""
    waiting = overview.queues_in_use()
    wanted = {queue for flow in registry.workflows().values() for queue in flow.queues} | set(
        waiting
    )
    served = reads.served_queues(silent_after=4 * settings().heartbeat)
    if not wanted:
        yield Check("workers", Verdict.WARN, "No queue is known here, so none was checked.")
        return
    for queue in sorted(wanted):
        name, steps = f"queue {queue}", waiting.get(queue, 0)
        if queue in served:
            yield Check(name, Verdict.OK, "A living worker serves it.")
        else:
            verdict = Verdict.FAIL if steps else Verdict.WARN
            told = f"No living worker serves it, and {steps or 'no'} steps wait there."
            yield Check(name, verdict, told, "Start a worker with this version of the workflow.")


def _clock_offset() -> float:
    """Seconds that the journal's clock is ahead of this machine's, which is what is measured here."""
    before = time.clock_gettime(time.CLOCK_REALTIME)
    journal = overview.epoch()
    return journal - (before + time.clock_gettime(time.CLOCK_REALTIME)) / 2


def _of_broker() -> Iterator[Check]:
    url = settings().broker_url
    if not url.startswith(("redis", "valkey")):
        yield Check(
            "broker", Verdict.OK, "Not Redis or Valkey: only its own tools can say how it is."
        )
        return
    try:
        with redis.Redis.from_url(
            url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
            socket_timeout=_BROKER_TIMEOUT, socket_connect_timeout=_BROKER_TIMEOUT,
        ) as client:  # fmt: skip
            client.ping()
            memory = client.info("memory")
    except (redis.RedisError, ValueError) as error:
        advice = "Start it, or correct ONWARD_BROKER_URL; the journal keeps all work until then."
        yield Check(
            "broker", Verdict.FAIL, f"The broker does not answer: {one_line(str(error))}.", advice
        )
        return
    yield Check("broker", Verdict.OK, "The broker answers.")
    yield check_eviction(str(memory.get("maxmemory_policy", "unknown")))


def check_eviction(policy: str) -> Check:
    """May the broker throw messages away when it is full?"""
    told = f"A full broker follows maxmemory-policy {policy}."
    if policy == "noeviction":
        return Check("eviction", Verdict.OK, told)
    return Check(
        "eviction", Verdict.FAIL, told, "Set noeviction: any other policy silently empties queues."
    )
