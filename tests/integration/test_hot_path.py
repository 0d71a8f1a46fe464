"""What a step costs the database, in counts that any machine repeats: commits, statements, pages, plans."""

import json
import re
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from models import database
from models.journal import effect_sql, effects, publish, steps
from models.journal import sql as hot
from models.journal.values import Claimed
from tasks import group
from tests.support.calling import FILL, hot_statements
from tests.support.filling import an_old_snapshot, fill
from tests.support.intents import asking, send
from tests.support.journal import Journal, Worker, at, row_of, submit_run
from tests.support.meter import meter

RUNS, STEPS = 20, 10
KEYS = [f"s{number}" for number in range(STEPS)]


def hop(run_id: str, worker: Worker) -> None:
    """Claim, complete, claim, complete: what a run costs with a message for every step."""
    worker.do(run_id, *KEYS)


def in_place(run_id: str, worker: Worker) -> None:
    """Complete and claim the next in one commit."""
    claimed: Claimed | None = worker.take(run_id, KEYS[0])
    while claimed is not None and claimed.next_key is not None:
        claimed = worker.complete_and_claim(claimed).claimed
    assert claimed is not None
    worker.complete(claimed)


@pytest.mark.parametrize(
    ("walk", "durable", "statements"),
    [(hop, 2.2, 2.2), (in_place, 1.3, 1.3)],
    ids=["hop", "sticky"],
)
def test_commits_and_statements_per_step(
    journal: Journal, walk: Any, durable: float, statements: float
) -> None:
    with meter(journal) as spent:
        for _ in range(RUNS):
            walk(submit_run(row_of(*KEYS)), Worker())
    assert spent.durable <= durable * RUNS * STEPS
    assert spent.statements <= statements * RUNS * STEPS
    assert spent.durable > RUNS * STEPS  # it did count


def test_a_renewal_of_many_leases_is_one_commit(journal: Journal) -> None:
    leases = [Worker().take(submit_run(row_of("a")), "a").lease for _ in range(50)]
    with meter(journal) as spent:
        steps.renew(leases, ttl=30)
    assert spent.durable <= 2
    assert spent.statements <= 4


def table_counts(journal: Journal, table: str) -> dict[str, int]:
    for connection in (database.connection(), journal.look):
        connection.execute("SELECT pg_stat_force_next_flush()")
    (row,) = journal.rows(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s", table
    )
    return row


@pytest.mark.parametrize("walk", [hop, in_place], ids=["hop", "sticky"])
def test_every_update_of_the_hot_table_is_hot(journal: Journal, walk: Any) -> None:
    before = table_counts(journal, "live")
    for _ in range(RUNS):
        walk(submit_run(row_of(*KEYS)), Worker())
    after = table_counts(journal, "live")
    updates = after["n_tup_upd"] - before["n_tup_upd"]
    assert updates >= RUNS * STEPS
    assert after["n_tup_hot_upd"] - before["n_tup_hot_upd"] == updates


CLAIMED = {
    "run_id": "run-00777", "branch": "0", "step_key": "s5", "token": 1, "owner": "start-1.x",
}  # fmt: skip
CARRIER = {
    "new_owner": "start-1.y", "worker": "w", "task_id": "t", "pid": 1, "pid_started": 1, "ttl": 30.0,
    "workflow": "toy", "versions": ["1"],
}  # fmt: skip
RESULT = {
    "prev_key": "s4", "input_digest": "d", "output": "null", "output_digest": "d", "joins": "s6",
    "join_index": 0, "attempt": 1, "claimed_at": "2030-01-01Z", "next_key": "s6", "next_queue": "q",
    "next_untracked": False, "after_key": "s7", "grace": 10.0, "parent": "0", "fork": ["s6", "s7"], "members": 2,
    "at_once": 64,
}  # fmt: skip
RENEWAL = {
    "run_ids": ["run-00777"], "branches": ["0"], "tokens": [1], "owners": ["start-1.x"], "ttl": 30.0,
}  # fmt: skip

EFFECT = {
    "key": "run-00777:s5:t:1", "undo_key": "run-00777:s5:t:1::undo", "nonce": "n", "tool": "t",
    "tool_version": "1", "undoes": None,
    "effect_class": "queryable", "request": "{}", "request_digest": "d", "send_within": 5.0,
    "absent_after": 90.0, "key_retention": None, "resend_limit": 8, "start_id": "start-1", "worker": "w",
    "pid": 1, "pid_started": 1, "pid_space": "p", "attempt": 1, "result": "null", "result_digest": "d",
    "error": "e", "call_over": True,
}  # fmt: skip

HOT: dict[str, tuple[LiteralString, dict[str, Any]]] = {
    "claim": (hot.CLAIM, CLAIMED | CARRIER),
    "claimed by": (hot.CLAIMED_BY, CLAIMED | CARRIER),
    "advance": (hot.ADVANCE, CLAIMED | CARRIER | RESULT),
    "advance and claim": (hot.ADVANCE_AND_CLAIM, CLAIMED | CARRIER | RESULT),
    "fork": (hot.FORK, CLAIMED | CARRIER | RESULT),
    "report": (hot.REPORT, CLAIMED | CARRIER | RESULT),
    "finish": (hot.FINISH, CLAIMED | CARRIER | RESULT),
    "renew": (hot.RENEW, RENEWAL),
    "intend": (effect_sql.INTEND, CLAIMED | EFFECT),
    "settle effect": (effect_sql.SETTLE, CLAIMED | EFFECT),
    "refuse effect": (effect_sql.REFUSE, CLAIMED | EFFECT),
    "doubt effect": (effect_sql.DOUBT, CLAIMED | EFFECT),
    "recall effect": (effect_sql.RECALL, EFFECT),
    "keep evidence": (effect_sql.KEEP_EVIDENCE, CLAIMED | EFFECT),
    "record pure": (effect_sql.RECORD_PURE, CLAIMED | EFFECT),
    **hot_statements(CLAIMED | {"attempt": 1}),
}

#: Plans that touch a handful of rows may read a table from end to end only when it is this small.
GROWING = {
    "live", "plan", "step", "run", "effect", "effect_settlement", "attempt", "recorded_call", "call_verdict",
    "call_reset", "wallet", "hold", "spend",
}  # fmt: skip


def plan_of(
    connection: "psycopg.Connection[Any]", statement: str, params: dict[str, Any], *, generic: bool
) -> list[dict[str, Any]]:
    """Every node of the plan, of the prepared statement or of one made for these values."""
    text = psycopg.ClientCursor(connection).mogrify(statement, params)
    if generic:
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
        text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", statement)
        given = ", ".join(["%s"] * len(names))
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE hot AS {text.replace('%%', '%')}")
        text = psycopg.ClientCursor(connection).mogrify(
            f"EXECUTE hot ({given})",
            [params[name] for name in names],
        )
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {text}").fetchone()
    if generic:
        connection.execute("DEALLOCATE hot")
    assert row is not None
    found = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return list(_nodes(found[0]["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def read_whole(nodes: list[dict[str, Any]]) -> set[str]:
    """Growing tables that a plan reads from end to end, or through anything but a primary key."""
    found = set()
    for node in nodes:
        index = node.get("Index Name")
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in GROWING:
            found.add(f"all of {node['Relation Name']}")
        if index is not None and not (index.startswith("pk_") and node.get("Index Cond", "x")):
            found.add(f"index {index}")
    return found


def worst_plans(journal: Journal) -> dict[str, set[str]]:
    """By statement: what it reads whole."""
    found = {}
    with psycopg.connect(journal.conninfo, autocommit=True) as connection:
        for name, (statement, params) in HOT.items():
            for generic in (False, True):
                whole = read_whole(plan_of(connection, statement, params, generic=generic))
                if whole:
                    found[f"{name}, {'generic' if generic else 'custom'}"] = whole
    return found


def test_hot_statements_go_by_primary_key(journal: Journal) -> None:
    fill(journal, 3000)
    journal.look.execute(FILL)
    journal.look.execute("ANALYZE")
    assert worst_plans(journal) == {}


def test_hot_statements_go_by_primary_key_under_an_old_snapshot(journal: Journal) -> None:
    fill(journal, 3000)
    journal.look.execute(FILL)
    size = "SELECT pg_relation_size('live')"
    before = journal.one(size)
    with an_old_snapshot(journal):
        for _ in range(4):
            journal.look.execute("UPDATE live SET revision = revision + 1")
            journal.look.execute("UPDATE effect SET revision = revision + 1")
            journal.look.execute("UPDATE wallet SET revision = revision + 1")
        journal.look.execute("ANALYZE")
        assert journal.one(size) > 2 * before  # dead rows that nobody may remove
        assert worst_plans(journal) == {}


def test_hot_statements_go_by_primary_key_from_the_first_run_on(journal: Journal) -> None:
    # A generic plan made now serves its connection until `live` is analysed. A renewal may read the whole
    # of a table that small: it happens once per heartbeat, not per step.
    assert set(worst_plans(journal)) <= {"renew, generic"}


def test_a_claim_reads_a_handful_of_pages_under_an_old_snapshot(journal: Journal) -> None:
    fill(journal, 2000)
    journal.look.execute("ANALYZE")
    with an_old_snapshot(journal):
        for _ in range(3):
            journal.look.execute("UPDATE live SET revision = revision + 1")
        text = psycopg.ClientCursor(journal.look).mogrify(
            hot.CLAIM, CLAIMED | CARRIER | {"run_id": "run-00778"}
        )
        with journal.look.transaction(force_rollback=True):
            row = journal.one(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}")
    top = row[0]["Plan"]
    assert top["Actual Rows"] == 1
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 120


def test_handing_out_messages_is_one_statement_however_many(journal: Journal) -> None:
    fill(journal, 1000)
    with meter(journal) as spent:
        wakeups = publish.take_due(limit=500)
    assert len(wakeups) == 500
    assert spent.statements <= 4
    assert spent.durable <= 2


def test_a_fork_and_its_reports_cost_one_commit_each(journal: Journal) -> None:
    width = 50
    run_id = submit_run(at("a") | group(*(at(f"m{n}") for n in range(width))) | at("join"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    with meter(journal) as spent:
        worker.complete(claimed)
        for number in range(width):
            worker.do(run_id, f"m{number}", branch=f"0/1.{number}")
    assert spent.durable <= 1 + 2 * width + 3


def test_an_effect_costs_two_commits_of_one_statement_each(journal: Journal) -> None:
    claims = [Worker().take(submit_run(row_of("a")), "a") for _ in range(RUNS)]
    with meter(journal) as spent:
        for number, claimed in enumerate(claims):
            send(claimed, asking(f"key-{number}"))
            effects.settle(f"key-{number}", claimed, result="1")
    assert 2 * RUNS <= spent.durable <= 2 * RUNS + 3
    assert spent.statements <= 2.2 * RUNS


def test_every_update_of_an_effect_is_hot(journal: Journal) -> None:
    claims = [Worker().take(submit_run(row_of("a")), "a") for _ in range(RUNS)]
    for number, claimed in enumerate(claims):
        for _ in range(3):
            send(claimed, asking(f"key-{number}"))
            effects.refuse(f"key-{number}", claimed, error="no")
    after = table_counts(journal, "effect")
    assert after["n_tup_upd"] >= 5 * RUNS
    assert after["n_tup_hot_upd"] == after["n_tup_upd"]
