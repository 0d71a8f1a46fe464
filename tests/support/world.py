"""A journal, a broker, an outside world and a cluster, with this process's own settings pointed at them."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from models import database
from models.journal.submitting import Submitted
from models.settings import settings
from models.values import decode
from recovery.watch import why
from tasks import registry
from tasks.starting import start_run
from tests.support.cluster import FAST, Cluster
from tests.support.fx import Fx
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step as the journal's view shows it."""

    state: str
    attempt: int
    token: int
    worker: str | None
    digest: str | None
    crashes: int | None
    lost: int | None
    block_reason: str | None
    error: str | None


class World:
    """What a test of whole processes needs, in one hand."""

    def __init__(self, directory: Path, *, cluster: Cluster, fx: Fx) -> None:
        self.directory = directory
        self.cluster = cluster
        self.fx = fx
        self.app = Celery("onward-tests", broker=settings().broker_url)
        self.app.conf.broker_transport_options = {
            "global_keyprefix": settings().key_prefix, "priority_steps": [0],
        }  # fmt: skip

    def submit(self, workflow: str, given: Mapping[str, object], **options: Any) -> Submitted:
        """Submit as any client does: the journal first, then the message."""
        return start_run(self.app, workflow, given, **options)

    def start(self, workflow: str, **given: object) -> str:
        """Submit and return the run's id."""
        return self.submit(workflow, given).run_id

    def state(self, run_id: str) -> str:
        row = database.fetch_one("SELECT state FROM run WHERE run_id = %(id)s", {"id": run_id})
        return str(row[0]) if row else "gone"

    def wait_run(self, run_id: str, *states: str, timeout: float = 30.0) -> str:
        """Wait until the run has one of these states (``completed`` when none is given)."""
        wanted = states or ("completed",)
        return wait_until(
            lambda: found if (found := self.state(run_id)) in wanted else None,
            timeout=timeout,
            what=f"run {run_id} is {' or '.join(wanted)}",
            details=lambda: f"{why(run_id)}\n{self.history(run_id)}",
        )

    def wait_runs(self, run_ids: list[str], *, timeout: float = 60.0) -> None:
        """Wait until all of these are completed."""
        wait_until(
            lambda: self.count_in_state(run_ids, "completed") == len(run_ids),
            timeout=timeout,
            what=f"{len(run_ids)} runs are completed",
            details=lambda: "\n".join(
                f"{one}: {why(one)}" for one in run_ids if self.state(one) != "completed"
            ),
        )

    def count_in_state(self, run_ids: list[str], state: str) -> int:
        rows = database.fetch(
            "SELECT count(*) FROM run WHERE run_id = ANY(%(ids)s) AND state = %(state)s",
            {"ids": run_ids, "state": state},
        )
        return int(rows[0][0])

    def step(self, run_id: str, step_key: str) -> StepSeen:
        rows = database.fetch(
            "SELECT state, attempt, token, worker, output_digest, crashes, lost, block_reason, error"
            " FROM steps WHERE run_id = %(id)s AND step_key = %(key)s",
            {"id": run_id, "key": step_key},
        )
        return StepSeen(*rows[0])

    def attempts(self, run_id: str) -> dict[str, int]:
        """How often each finished step was claimed."""
        rows = database.fetch(
            "SELECT step_key, attempt FROM step WHERE run_id = %(id)s", {"id": run_id}
        )
        return {row[0]: row[1] for row in rows}

    def ended(self, run_id: str, step_key: str) -> list[tuple[str, str]]:
        """(outcome, error) of the attempts that did not complete, in order."""
        rows = database.fetch(
            "SELECT outcome, coalesce(error, '') FROM attempt"
            " WHERE run_id = %(id)s AND step_key = %(key)s ORDER BY token, ended_at",
            {"id": run_id, "key": step_key},
        )
        return [(row[0], row[1]) for row in rows]

    def holder(self, run_id: str) -> int:
        """The pid that holds a step of this run now."""
        return int(
            wait_until(
                lambda: database.fetch_one(
                    "SELECT pid FROM live WHERE run_id = %(id)s AND owner IS NOT NULL",
                    {"id": run_id},
                ),
                what=f"a process holds a step of {run_id}",
            )[0]
        )

    def results(self, run_id: str) -> dict[str, tuple[str, str]]:
        """(output, digest) of every completed step."""
        rows = database.fetch(
            "SELECT step_key, output, output_digest FROM step"
            " WHERE run_id = %(id)s AND state = 'completed'",
            {"id": run_id},
        )
        return {row[0]: (row[1], row[2]) for row in rows}

    def value(self, run_id: str, step_key: str) -> Any:
        """What a completed step returned, as structures."""
        return decode(self.results(run_id)[step_key][0])

    def duplicates(self, run_id: str) -> int:
        row = database.fetch_one("SELECT duplicates FROM run WHERE run_id = %(id)s", {"id": run_id})
        return int(row[0]) if row else 0

    def events(self, run_id: str, kind: str = "") -> list[tuple[str, str | None, str]]:
        """(kind, step key, detail) of what happened to a run, in order."""
        rows = database.fetch(
            "SELECT kind, step_key, detail FROM event WHERE run_id = %(id)s"
            " AND (%(kind)s = '' OR kind = %(kind)s) ORDER BY event_id",
            {"id": run_id, "kind": kind},
        )
        return [(row[0], row[1], row[2]) for row in rows]

    def history(self, run_id: str) -> str:
        return "\n".join(str(event) for event in self.events(run_id))

    def notes(self, run_id: str = "", step_key: str = "") -> list[dict[str, Any]]:
        """What bodies wrote down outside the journal, in order."""
        path = Path(os.environ["ONWARD_TEST_NOTES"])
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [
            one
            for one in found
            if (not run_id or one["run_id"] == run_id)
            and (not step_key or one["step_key"] == step_key)
        ]

    def bodies(self, run_id: str, step_key: str = "") -> int:
        """How many bodies were entered, as they themselves wrote down."""
        return sum(1 for one in self.notes(run_id, step_key) if one["what"] == "body")

    def bodies_by_run(self) -> dict[str, int]:
        """How many bodies were entered, by run."""
        return dict(Counter(one["run_id"] for one in self.notes() if one["what"] == "body"))

    def fired(self, point: str) -> bool:
        return (Path(os.environ["ONWARD_FAILPOINT_DIR"]) / point).exists()

    def wait_fired(self, point: str, *, timeout: float = 20.0) -> None:
        wait_until(lambda: self.fired(point), timeout=timeout, what=f"failpoint {point} fires")

    @cached_property
    def broker(self) -> "redis.Redis":
        """The broker itself, to look into and to hurt."""
        return redis.Redis.from_url(settings().broker_url)

    def queue_length(self, queue: str) -> int:
        return int(self.broker.llen(f"{settings().key_prefix}{queue}"))

    def close(self) -> None:
        self.app.close()
        if "broker" in self.__dict__:
            self.broker.close()


@contextmanager
def a_world(
    directory: Path, *, database_url: str, broker_url: str, agents: str,
    env: Mapping[str, str] | None = None,
) -> Iterator[World]:  # fmt: skip
    """Everything but the processes, which the test starts as it needs them."""
    failpoints = directory / "failpoints"
    failpoints.mkdir(parents=True)
    with Fx(directory / "fx") as fx, pytest.MonkeyPatch.context() as patch:
        wanted = {
            **FAST,
            "ONWARD_TEST_FX": fx.url,
            "ONWARD_TEST_NOTES": str(directory / "notes"),
            "ONWARD_FAILPOINT_DIR": str(failpoints),
            "ONWARD_ARTIFACTS": str(directory / "artifacts"),
            **(env or {}),
        }
        ours = {"ONWARD_DATABASE_URL": database_url, "ONWARD_BROKER_URL": broker_url, **wanted}
        ours.pop("ONWARD_FAILPOINTS", None)  # this process is to live
        for name, value in ours.items():
            patch.setenv(name, value)
        settings.cache_clear()
        database.close()
        registry.load_agents(agents)
        cluster = Cluster(
            directory / "cluster", database_url=database_url, broker_url=broker_url, agents=agents,
            env=wanted,
        )  # fmt: skip
        world = World(directory, cluster=cluster, fx=fx)
        try:
            yield world
        finally:
            cluster.stop_all()
            world.close()
            database.close()
    settings.cache_clear()
