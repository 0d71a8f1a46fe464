"""The journal in a test's hands: toy runs, workers without Celery, an outsider's look at the rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from models import database
from models.digests import digest_text
from models.ids import new_nonce
from models.journal import expanding, failing, rescue, runs, steps
from models.journal.runs import Submission, Submitted
from models.journal.values import BranchRef, Carrier, Claimed, Completed, Output
from models.plan import ROOT_BRANCH
from tasks import Context, inputs, step
from tasks.canvas import Canvas, Chain, Signature, chain
from tasks.compile import compile_insertion, compile_plan
from tasks.step import Step
from tasks.workflow import Workflow
from tests.support.waiting import wait_until

TABLES = ("run", "live", "plan", "step", "attempt", "event", "throttle")
FAILURE = {"error_type": "ValueError", "error": "no such clause"}


@step
def work(ctx: Context, *values: Any) -> Any:
    return values


@step(untracked=True)
def blind(ctx: Context, *values: Any) -> Any:
    return values


@step(rate_limit="10/s")
def paced(ctx: Context, *values: Any) -> Any:
    return values


def _toy() -> Canvas:
    return work.s()


TOY = Workflow(
    _toy, name="toy", version="1", extra_steps=(work, blind, paced), extra_queues=("other",)
)


def at(key: str, kind: "Step[..., Any]" = work, *, queue: str | None = None) -> Signature:
    """A step under a key of the test's choice."""
    return kind.s().set(key=key, queue=queue)


def row_of(*keys: str) -> Chain:
    """Steps one after another."""
    return chain(*(at(key) for key in keys))


def submit(canvas: Canvas, *, given: str = "{}", **options: Any) -> Submitted:
    """Submit a toy run with this plan."""
    return runs.submit(
        Submission(
            workflow="toy",
            version="1",
            interface_digest="interface",
            code_digest="code",
            config_digest="config",
            input=given,
            input_digest=digest_text(given),
            plan=compile_plan(canvas, workflow=TOY),
            **options,
        )
    )


def submit_run(canvas: Canvas, **options: Any) -> str:
    return submit(canvas, **options).run_id


def output(claimed: Claimed, text: str = "null") -> Output:
    """A result as the engine records it."""
    return Output(text, *inputs.digests(inputs.gathered(claimed), text))


@dataclass
class Worker:
    """One start of a worker, moved by hand through the verbs that the engine would call."""

    name: str = "worker-1"
    start_id: str = "start-1"
    pid: int = 4242
    claims: list[Claimed] = field(default_factory=list)

    def carrier(self, task_id: str = "task") -> Carrier:
        return Carrier(self.start_id, self.name, task_id, self.pid, self.pid + 1)

    def claim(
        self,
        run_id: str,
        step_key: str,
        branch: str = ROOT_BRANCH,
        *,
        workflow: str | None = "toy",
        versions: Sequence[str] = ("1",),
    ) -> Claimed | None:
        return steps.claim(
            run_id,
            branch,
            step_key,
            workflow=workflow,
            versions=versions,
            carrier=self.carrier(f"{run_id}:{step_key}"),
            nonce=new_nonce(),
        )

    def take(self, run_id: str, step_key: str, branch: str = ROOT_BRANCH) -> Claimed:
        """Claim what must be there to be claimed."""
        claimed = self.claim(run_id, step_key, branch)
        assert claimed is not None, (run_id, step_key, branch)
        return claimed

    def complete(self, claimed: Claimed, text: str = "null") -> Completed:
        return steps.complete(claimed, output(claimed, text), worker=self.name, successor=claimed.successor)

    def complete_and_claim(self, claimed: Claimed, text: str = "null") -> Completed:
        return steps.complete_and_claim(
            claimed, output(claimed, text), carrier=self.carrier("in-place"), nonce=new_nonce()
        )

    def then(self, claimed: Claimed, canvas: Canvas, text: str = "null") -> Completed:
        return expanding.complete_with(
            claimed,
            output(claimed, text),
            worker=self.name,
            compile_insertion=lambda taken, planned: compile_insertion(
                canvas,
                workflow=TOY,
                branch=claimed.branch,
                after=inputs.as_node(claimed),
                taken=taken,
                planned=planned,
            ),
        )

    def retry(self, claimed: Claimed, *, delay: float = 0.0) -> None:
        failing.retry(claimed, worker=self.name, delay=delay, **FAILURE)

    def fail(self, claimed: Claimed) -> None:
        failing.fail(claimed, worker=self.name, **FAILURE)

    def interrupt(self, claimed: Claimed, *, crashed: bool = False) -> None:
        failing.interrupt(claimed, worker=self.name, crashed=crashed, **FAILURE)

    def do(self, run_id: str, *step_keys: str, branch: str = ROOT_BRANCH) -> Completed:
        """Claim and complete these steps of one branch, one after another."""
        completed = Completed()
        for step_key in step_keys:
            completed = self.complete(self.take(run_id, step_key, branch), f'"{step_key}"')
        return completed


class Journal:
    """One test's database, looked at over a connection of the test's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conninfo = url.replace("+psycopg", "", 1)
        self.look = self.connect()

    def connect(self) -> "psycopg.Connection[dict[str, Any]]":
        """Another session, in autocommit."""
        return psycopg.connect(self.conninfo, autocommit=True, row_factory=dict_row)

    def rows(self, statement: LiteralString, *params: object) -> list[dict[str, Any]]:
        return self.look.execute(statement, params).fetchall()

    def one(self, statement: LiteralString, *params: object) -> Any:
        """The first column of the first row."""
        (row,) = self.rows(statement, *params)
        return next(iter(row.values()))

    def live(self, run_id: str, branch: str = ROOT_BRANCH) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM live WHERE run_id = %s AND branch = %s", run_id, branch)
        return row

    def branches(self, run_id: str) -> set[str]:
        found = self.rows("SELECT branch FROM live WHERE run_id = %s", run_id)
        return {row["branch"] for row in found}

    def run(self, run_id: str) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM run WHERE run_id = %s", run_id)
        return row

    def step(self, run_id: str, step_key: str) -> dict[str, Any] | None:
        found = self.rows(
            "SELECT * FROM step WHERE run_id = %s AND step_key = %s", run_id, step_key
        )
        return found[0] if found else None

    def states(self, run_id: str) -> dict[str, str]:
        found = self.rows("SELECT step_key, state FROM steps WHERE run_id = %s", run_id)
        return {row["step_key"]: row["state"] for row in found}

    def events(self, run_id: str) -> list[str]:
        found = self.rows("SELECT kind FROM event WHERE run_id = %s ORDER BY event_id", run_id)
        return [row["kind"] for row in found]

    def attempts(self, run_id: str) -> list[tuple[str, int, str]]:
        found = self.rows(
            "SELECT step_key, token, outcome FROM attempt WHERE run_id = %s ORDER BY ended_at, token",
            run_id,
        )
        return [(row["step_key"], row["token"], row["outcome"]) for row in found]

    def ref(self, run_id: str, branch: str = ROOT_BRANCH) -> BranchRef:
        return BranchRef(run_id, branch, self.live(run_id, branch)["revision"])

    def image(self) -> dict[str, list[str]]:
        """Every row there is, to show that something wrote nothing."""
        return {
            table: sorted(
                row["row"]
                for row in self.look.execute(
                    sql.SQL("SELECT t::text AS row FROM {} t").format(sql.Identifier(table))
                )
            )
            for table in TABLES
        }

    def make(self, run_id: str, branch: str = ROOT_BRANCH, **values: Any) -> None:
        """Put a live row into a state that would take a test long to reach."""
        names = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in values.items()
        )
        self.look.execute(
            sql.SQL(
                "UPDATE live SET {}, revision = revision + 1 WHERE run_id = {} AND branch = {}"
            ).format(names, sql.Literal(run_id), sql.Literal(branch))
        )

    def freeze(self) -> None:
        """Stop the journal's clock, for every connection opened from here on."""
        self._set_clock(self.one("SELECT clock_timestamp()::text"))

    def advance(self, seconds: float) -> None:
        """Move a stopped clock on."""
        self._set_clock(
            self.one("SELECT (onward_now() + make_interval(secs => %s))::text", seconds)
        )

    def _set_clock(self, at: str) -> None:
        name = sql.Identifier(self.look.info.dbname)
        self.look.execute(
            sql.SQL("ALTER DATABASE {} SET onward.now = {}").format(name, sql.Literal(at))
        )
        self.look.execute("SELECT set_config('onward.now', %s, false)", (at,))
        database.close()

    def lose(self, *, after: float = 31.0) -> int:
        """Let every lease run out, and have it noticed."""
        self.advance(after)
        return rescue.expire(rescue.expired(limit=1000))

    @contextmanager
    def holding(self, statement: LiteralString, *params: object) -> Iterator["Blocker"]:
        """A transaction that has executed this and does nothing more until it is released."""
        with psycopg.connect(self.conninfo) as other:
            other.execute(statement, params)
            yield Blocker(self, other)
            other.rollback()

    def deadlocks(self) -> int:
        """Deadlocks of this database, which backends report at the latest when they end."""
        database.close()
        wait_until(
            lambda: not self.one(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward'"
                " AND datname = current_database()"
            ),
            what="the backends of the verbs have ended",
        )
        return int(
            self.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        )


class Blocker:
    """An open transaction that others run into."""

    def __init__(self, journal: Journal, connection: "psycopg.Connection[Any]") -> None:
        self._journal = journal
        self._connection = connection
        self.pid = connection.info.backend_pid

    @property
    def blocked(self) -> list[int]:
        """Backends that wait for a lock of this one."""
        found = self._journal.rows(
            "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", self.pid
        )
        return [row["pid"] for row in found]

    def wait_for(self, backends: int) -> None:
        """Wait until that many backends wait for a lock of this one."""
        wait_until(
            lambda: len(self.blocked) >= backends, what=f"{backends} backends wait for {self.pid}"
        )

    def release(self) -> None:
        self._connection.rollback()
