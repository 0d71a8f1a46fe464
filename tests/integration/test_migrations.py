"""The schema that migrations build is the one that the code was written for."""

import re

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg import sql
from sqlalchemy import create_engine

from models import database, migrations, rows, states
from models.settings import settings
from tasks import group
from tests.support.calling import hold
from tests.support.intents import send
from tests.support.journal import Journal, Worker, at, row_of, submit_run

CONSTRAINTS = """
SELECT coalesce(t.relname, d.typname), c.conname, pg_get_constraintdef(c.oid)
FROM pg_constraint c LEFT JOIN pg_class t ON t.oid = c.conrelid LEFT JOIN pg_type d ON d.oid = c.contypid
WHERE c.connamespace = 'public'::regnamespace AND c.contype IN ('c', 'p', 'u', 'f')
  AND t.relname IS DISTINCT FROM 'alembic_version'
ORDER BY 1, 2"""


def fetch(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url.replace("+psycopg", "", 1)) as connection:
        return connection.execute(sql.SQL(statement)).fetchall()


def test_the_migrated_schema_is_what_the_rows_say(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, rows.Base.metadata) == []
    engine.dispose()


def test_the_constraints_are_what_the_rows_say(database_url: str, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url.replace("+psycopg", "", 1)) as connection:
        connection.execute(
            "CREATE FUNCTION onward_now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'"
        )
    engine = create_engine(empty_database_url)
    rows.Base.metadata.create_all(engine)
    engine.dispose()
    migrated, described = fetch(database_url, CONSTRAINTS), fetch(empty_database_url, CONSTRAINTS)
    assert len(migrated) > 20
    assert migrated == described


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    catalogue = "SELECT oid::text, relname, relfilenode::text FROM pg_class ORDER BY oid"
    migrations.upgrade(empty_database_url)
    before = fetch(empty_database_url, catalogue)
    migrations.upgrade(empty_database_url)
    assert fetch(empty_database_url, catalogue) == before
    assert fetch(empty_database_url, "SELECT * FROM alembic_version") == [(migrations.head(),)]


def carry_over(journal: Journal, url: str) -> dict[str, list[tuple[object, ...]]]:
    """Put a journal's rows into one of an earlier version, as far as that has columns for them; what it then holds."""
    columns = fetch(
        url,
        "SELECT c.table_name::text, array_agg(c.column_name::text ORDER BY c.ordinal_position)"
        " FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)"
        " WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.table_name <> 'alembic_version'"
        " GROUP BY 1",
    )
    held = {}
    with (
        psycopg.connect(journal.conninfo) as source,
        psycopg.connect(url.replace("+psycopg", "", 1)) as target,
    ):
        target.execute("SET session_replication_role = replica")  # parents may come after children
        for table, names in columns:
            assert isinstance(table, str)
            assert isinstance(names, list)
            picked = sql.SQL("SELECT {} FROM {} ORDER BY 1, 2").format(
                sql.SQL(", ").join(
                    sql.SQL("{}::text").format(sql.Identifier(name)) for name in names
                ),
                sql.Identifier(table),
            )
            held[table] = source.execute(picked).fetchall()
            into = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            )
            target.cursor().executemany(into, held[table])
            assert target.execute(picked).fetchall() == held[table]
    return {table: rows for table, rows in held.items() if rows}


def test_runs_of_the_version_before_calls_go_on_and_get_their_wallets(
    journal: Journal, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upgraded while one step is done and the next one runs, with an effect on its way."""
    worker, run_id = Worker(), submit_run(row_of("a", "b", "c"))
    worker.do(run_id, "a")
    claimed = worker.take(run_id, "b")
    send(claimed)
    command.upgrade(migrations.config(empty_database_url), "0003")
    carried = carry_over(journal, empty_database_url)
    assert {"run", "plan", "live", "step", "effect"} <= set(carried)

    migrations.upgrade(empty_database_url)
    database.close()
    monkeypatch.setenv("ONWARD_DATABASE_URL", empty_database_url)
    settings.cache_clear()
    assert fetch(empty_database_url, "SELECT wallet_id FROM run") == [(None,)]
    assert len(fetch(empty_database_url, "SELECT 1 FROM effect")) == len(carried["effect"])
    hold(claimed)
    following = worker.complete_and_claim(claimed).claimed
    assert following is not None
    assert following.wallet_id == run_id
    worker.complete(following)
    assert fetch(empty_database_url, "SELECT state FROM run") == [("completed",)]


def test_every_time_has_its_zone_and_every_text_its_full_length(database_url: str) -> None:
    odd = fetch(
        database_url,
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name <> 'alembic_version' AND data_type IN"
        " ('timestamp without time zone', 'character varying', 'integer', 'json', 'jsonb')",
    )
    assert odd == []


def test_the_hot_table_is_made_for_hot_updates(database_url: str) -> None:
    options = fetch(database_url, "SELECT unnest(reloptions) FROM pg_class WHERE relname = 'live'")
    assert ("fillfactor=50",) in options
    indexed = fetch(
        database_url, "SELECT indexdef FROM pg_indexes WHERE tablename = 'live' ORDER BY 1"
    )
    assert [re.sub(r".*USING", "USING", str(row[0])) for row in indexed] == [
        "USING btree (run_id, branch)"
    ]


@pytest.mark.parametrize(
    ("table", "column", "members"),
    [
        ("live", "state", set(states.StepState) - {"completed", "cancelled"}),
        ("step", "state", {"completed", "failed", "cancelled"}),
        ("run", "state", set(states.RunState)),
        ("run", "hold", set(states.Hold)),
        ("live", "block_reason", set(states.BlockReason)),
    ],
)
def test_the_database_knows_the_states_of_the_code(
    database_url: str, table: str, column: str, members: set[str]
) -> None:
    ((definition,),) = fetch(
        database_url,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint"  # noqa: S608 - two names of this file
        f" WHERE conname = 'ck_{table}_{column}'",
    )
    assert set(re.findall(r"'([a-z_]+)'::text", str(definition))) == {*map(str, members)}


def test_terminal_states_are_rows_of_what_is_finished() -> None:
    finished = {"completed", "failed", "cancelled"}
    assert finished >= states.TERMINAL_STEP_STATES
    assert all(not states.TRANSITIONS[state] for state in states.TERMINAL_STEP_STATES)


def test_the_views_show_one_state_per_step(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b") | group(at("m0"), at("m1"), at("m2")) | at("join"))
    worker = Worker()

    def shown() -> dict[str, str]:
        found = journal.rows("SELECT step_key, state FROM steps WHERE run_id = %s", run_id)
        assert len(found) == 6
        return {row["step_key"]: row["state"] for row in found}

    later = dict.fromkeys(("m0", "m1", "m2", "join"), "not_reached")
    assert shown() == {"a": "pending", "b": "not_reached", **later}
    worker.do(run_id, "a")
    claimed = worker.take(run_id, "b")
    assert shown() == {"a": "completed", "b": "running", **later}
    worker.complete(claimed)
    worker.interrupt(worker.take(run_id, "m0", "0/1.0"))
    worker.retry(worker.take(run_id, "m1", "0/1.1"))
    worker.fail(worker.take(run_id, "m2", "0/1.2"))
    assert shown() == {
        "a": "completed", "b": "completed", "m0": "unknown", "m1": "pending", "m2": "failed",
        "join": "not_reached",
    }  # fmt: skip
    (row,) = journal.rows("SELECT * FROM steps WHERE step_key = 'm1'")
    assert (row["attempt"], row["failures"], row["error"]) == (1, 1, "no such clause")
    (run,) = journal.rows("SELECT * FROM runs")
    assert (run["state"], run["hold"], run["completed_steps"]) == ("running", "failed", 2)
    assert run["step_count"] == 6
