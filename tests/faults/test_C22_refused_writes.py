"""C22: the work is done, and Postgres refuses to write it down: deadlocks and serialisation failures."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from models import database
from models.ids import new_nonce
from models.journal import steps, submitting
from models.journal.values import Carrier
from models.settings import settings
from tasks.starting import prepare
from tests.support.in_the_air import SOON, caught, effect_of, happened_once
from tests.support.invariants import check_invariants
from tests.support.threads import at_once
from tests.support.waiting import wait_until
from tests.support.world import World

DEADLOCK, SERIALISATION = "40P01", "40001"
FOR_EVER = 1_000_000
#: Where what `order` came to is written: the answer of its tool, then the result of its body.
WRITES = {"answer": "effect_settlement", "result": "step"}

#: The refusals are counted by a sequence, which no rollback takes back.
_REFUSE: LiteralString = """
CREATE SEQUENCE {count};
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval({text}) <= {times} THEN
        RAISE EXCEPTION 'ordered by the test' USING ERRCODE = {sqlstate};
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW WHEN (NEW.run_id = {run_id} AND {only})
EXECUTE FUNCTION {name}()"""

_numbers = count(1)


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered,tests.agents.plain", env=SOON) as world:
        _let_workers_give_way()
        world.cluster.up()
        yield world


def _let_workers_give_way() -> None:
    """A worker looks for deadlocks once, so late that whoever closes the circle has had time to."""
    with _link() as link:
        name = sql.Identifier(link.info.dbname)
        link.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '2s'").format(name))


@contextmanager
def _link() -> Iterator[psycopg.Connection]:
    """Somebody else's session, which waits for locks and is never the one to be sacrificed."""
    with psycopg.connect(database.conninfo(), autocommit=True) as link:
        link.execute("SET deadlock_timeout = '60s'")
        yield link


class Refusal:
    """Writes about one run that Postgres refuses."""

    def __init__(
        self, run_id: str, table: str, sqlstate: str, *, times: int, event: LiteralString = "INSERT",
        only: LiteralString = "NEW.step_key = 'order'",
    ) -> None:  # fmt: skip
        self._name, self._table, self._times = f"refuse_{next(_numbers)}", table, times
        parts = {
            "count": sql.Identifier(f"{self._name}_count"), "name": sql.Identifier(self._name),
            "text": sql.Literal(f"{self._name}_count"), "times": sql.Literal(times),
            "sqlstate": sql.Literal(sqlstate), "table": sql.Identifier(table), "run_id": sql.Literal(run_id),
            "event": sql.SQL(event), "only": sql.SQL(only),
        }  # fmt: skip
        with _link() as link:
            link.execute(sql.SQL(_REFUSE).format(**parts))

    @property
    def refused(self) -> int:
        """How many writes were refused."""
        query = sql.SQL("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}")
        with _link() as link:
            row = link.execute(query.format(sql.Identifier(f"{self._name}_count"))).fetchone()
        assert row is not None
        return min(int(row[0]), self._times)

    def end(self) -> None:
        """Let everything through from now on."""
        drop = sql.SQL("DROP TRIGGER {} ON {}")
        with _link() as link:
            link.execute(drop.format(sql.Identifier(self._name), sql.Identifier(self._table)))


@pytest.mark.parametrize("times", [1, 2, 6])
@pytest.mark.parametrize("sqlstate", [DEADLOCK, SERIALISATION])
@pytest.mark.parametrize("write", WRITES)
def test_C22_only_the_statement_is_repeated(
    world: World, write: str, sqlstate: str, times: int
) -> None:
    name = f"{write}-{sqlstate}-{times}"
    run_id = caught(world, name, "after")
    refusal = Refusal(run_id, WRITES[write], sqlstate, times=times)
    world.fx.release(name)
    world.wait_run(run_id)
    refusal.end()

    assert refusal.refused == times
    happened_once(world, name)
    assert world.fx.lookups(name) == 0
    assert world.attempts(run_id) == {"prepare": 1, "order": 1, "report": 1}
    assert world.bodies(run_id, "order") == 1
    check_invariants(settings().database_url, run_id)


def test_C22_after_the_limit_it_is_unknown_and_reconciled(world: World) -> None:
    runs = {write: caught(world, f"limit-{write}", "after") for write in WRITES}
    refusals = {
        write: Refusal(run_id, WRITES[write], SERIALISATION, times=FOR_EVER)
        for write, run_id in runs.items()
    }
    for write in WRITES:
        world.fx.release(f"limit-{write}")
    limit = 2 * settings().lease_ttl + settings().lease_ttl + 2 * settings().sweep_period
    for write, run_id in runs.items():
        wait_until(
            lambda: world.events(run_id, "lease_expired"),  # noqa: B023 - called at once
            timeout=limit + 5,
            what=f"{write} is given up, and the step with it",
        )
        assert world.step(run_id, "order").state in ("unknown", "pending", "running")
        assert world.ended(run_id, "order")[0][0] == "expired", "it was called a failure"
        assert refusals[write].refused > 8
    for refusal in refusals.values():
        refusal.end()

    for write, run_id in runs.items():
        world.wait_run(run_id)
        happened_once(world, f"limit-{write}")
        assert effect_of(run_id).source == ("lookup" if write == "answer" else "answer")
        assert world.step(run_id, "order").crashes in (None, 0)
        check_invariants(settings().database_url, run_id)


def _deadlocks() -> int:
    row = database.fetch_one(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", {}
    )
    assert row is not None
    return int(row[0])


def _is_waited_for(pid: int) -> bool:
    rows = database.fetch(
        "SELECT 1 FROM pg_stat_activity WHERE %(pid)s = ANY(pg_blocking_pids(pid))", {"pid": pid}
    )
    return bool(rows)


def _circle(world: World, name: str, run_id: str) -> None:
    """Lock a run and then its step, while a worker that completes the step locks them the other way round."""
    with _link() as other, other.transaction():
        other.execute("SELECT 1 FROM run WHERE run_id = %s FOR UPDATE", [run_id])
        world.fx.release(name)
        wait_until(
            lambda: _is_waited_for(other.info.backend_pid),
            what="the worker waits for the run's row",
        )
        other.execute("SELECT 1 FROM live WHERE run_id = %s FOR UPDATE", [run_id])


def test_C22_two_workers_in_circles_with_other_transactions(world: World) -> None:
    runs = {
        name: caught(world, name, "after", workflow="ledgered-last") for name in ("left", "right")
    }
    before = _deadlocks()
    at_once(*(partial(_circle, world, name, run_id) for name, run_id in runs.items()))
    world.wait_runs(list(runs.values()))

    wait_until(lambda: _deadlocks() >= before + 2, what="Postgres tells of two deadlocks")
    for name, run_id in runs.items():
        happened_once(world, name)
        assert world.attempts(run_id) == {"order": 1}
        assert world.bodies(run_id) == 1
        check_invariants(settings().database_url, run_id)


def _stale_run(number: int) -> str:
    """A run whose only step was claimed by somebody who is gone, before anybody else heard of it."""
    owner = Carrier("start-gone", "gone@nowhere", "task", pid=0, pid_started=0)
    run_id = submitting.submit(prepare("plain-one", {"value": number})).run_id
    claimed = steps.claim(
        run_id, "0", "noted", workflow="plain-one", versions=["1"], carrier=owner, nonce=new_nonce()
    )
    assert claimed is not None
    return run_id


def test_C22_the_sweep_goes_on_around_a_row_that_it_cannot_write(world: World) -> None:
    control = world.cluster.pids["control"]
    bad, *others = [_stale_run(number) for number in range(4)]
    refusal = Refusal(
        bad, "live", DEADLOCK, times=FOR_EVER, event="UPDATE",
        only="OLD.state = 'unknown' AND NEW.state = 'pending'",
    )  # fmt: skip
    world.wait_runs(others)
    wait_until(lambda: refusal.refused, what="Postgres refuses to write one of the rows")
    wait_until(
        lambda: "could not handle it" in str(world.step(bad, "noted").error), what="it is set aside"
    )
    for _ in range(3):
        _one_more_sweep()

    step = world.step(bad, "noted")
    assert (step.state, step.attempt) == ("unknown", 1)
    assert "ordered by the test" in str(step.error)
    assert world.cluster.logs("control").count("Set aside:") == 1, "it is told of every time"
    for run_id in (bad, *others):
        assert len(world.events(run_id, "lease_expired")) == 1
    assert world.cluster.pids["control"] == control
    assert "WorkerLostError" not in world.cluster.logs("control")

    refusal.end()
    database.fetch("UPDATE live SET due_at = onward_now() WHERE run_id = %(id)s", {"id": bad})
    world.wait_runs([bad])
    for run_id in (bad, *others):
        assert world.bodies(run_id) == 1
        assert world.attempts(run_id) == {"noted": 2}
        check_invariants(settings().database_url, run_id)


def _one_more_sweep() -> None:
    """Wait until a sweep that began after this is complete."""
    for _ in range(2):
        wait_until(partial(_has_swept_since, _last_sweep()), what="another sweep is complete")


def _has_swept_since(last: str) -> bool:
    return _last_sweep() != last


def _last_sweep() -> str:
    row = database.fetch_one("SELECT completed_at::text FROM pass WHERE name = 'sweep'", {})
    return str(row[0]) if row else ""
