"""A step that puts new steps between itself and its successor (``Then``): plan, count and result in one commit."""

import json
from collections.abc import Callable
from dataclasses import replace

from models import database
from models.artifacts import payloads
from models.artifacts.payloads import Uploaded
from models.journal import sql, steps
from models.journal.errors import LeaseLost
from models.journal.submitting import INSERT_PLAN, node_record
from models.journal.values import Claimed, Completed, Output, Planned
from models.plan import Plan

#: (how many keys of a stem the run has, how many steps it has) -> the new steps
CompileInsertion = Callable[[Callable[[str], int], int], Plan]


def complete_with(
    claimed: Claimed, output: Output, *, worker: str, compile_insertion: CompileInsertion
) -> Completed:
    """Record a result together with the steps it asks for. Raises ``LeaseLost`` like ``complete``.

    The own live row is locked first, then the run: two branches that grow the plan at once take turns,
    so keys stay unique. An error of the compiler (a circle, a limit) leaves everything as it was.
    """
    uploaded: dict[str, Uploaded] = {}
    while True:
        try:
            return _complete_with(
                claimed,
                output,
                worker=worker,
                compile_insertion=compile_insertion,
                uploaded=uploaded,
            )
        except _Unkept as large:
            uploaded |= {text: payloads.upload(text) for text in large.texts}


class _Unkept(Exception):
    """Arguments for the artifact store: an upload may outlast a lease, whose row the transaction locks."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(f"{len(texts)} to be kept first")
        self.texts = texts


def _complete_with(
    claimed: Claimed, output: Output, *, worker: str, compile_insertion: CompileInsertion,
    uploaded: dict[str, Uploaded],
) -> Completed:  # fmt: skip
    run_id = claimed.run_id
    with database.transaction():
        _lock(claimed)
        (planned,) = database.fetch(
            "SELECT step_count FROM run WHERE run_id = %(run_id)s FOR UPDATE", {"run_id": run_id}
        )[0]
        plan = compile_insertion(lambda stem: _occurrences(run_id, stem), planned)
        plan = _recorded(plan, run_id, uploaded)
        nodes = [node_record(node, planned + place) for place, node in enumerate(plan.nodes)]
        database.fetch(
            INSERT_PLAN,
            {"run_id": run_id, "nodes": json.dumps(nodes), "inserted_by": claimed.step_key},
        )
        database.fetch(
            "UPDATE run SET step_count = step_count + %(more)s, revision = revision + 1"
            " WHERE run_id = %(run_id)s",
            {"run_id": run_id, "more": len(nodes)},
        )
        return steps.complete(
            _redirected(claimed, plan), output, worker=worker, successor=plan.entry
        )


def _recorded(plan: Plan, run_id: str, uploaded: dict[str, Uploaded]) -> Plan:
    """The plan with arguments as they are recorded. Raises ``_Unkept`` for what has to be uploaded first."""
    texts = [node.arguments for node in plan.nodes]
    large = [text for text in texts if payloads.is_moved(text)]
    if unkept := [text for text in large if text not in uploaded]:
        raise _Unkept(unkept)
    if not large and all(payloads.seal(text) is text for text in texts[:1]):
        return plan
    nodes = []
    for node in plan.nodes:
        known = uploaded.get(node.arguments)
        text = payloads.seal(node.arguments) if known is None else payloads.keep(
            node.arguments, known, run_id=run_id, step_key=node.step_key, name="arguments", role="input"
        )  # fmt: skip
        nodes.append(replace(node, arguments=text))
    return replace(plan, nodes=tuple(nodes))


def _lock(claimed: Claimed) -> None:
    row = database.fetch_one(
        f"SELECT 1 FROM live l WHERE {sql.HELD} FOR UPDATE",
        {
            "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
            "token": claimed.token, "owner": claimed.owner,
        },
    )  # fmt: skip
    if row is None:
        raise LeaseLost(
            f"Step {claimed.step_key!r} of run {claimed.run_id} was taken by another attempt."
        )


def _redirected(claimed: Claimed, plan: Plan) -> Claimed:
    following = next(node for node in plan.nodes if node.step_key == plan.entry.next_key)
    return replace(
        claimed, next_key=plan.entry.next_key, fork=list(plan.entry.fork) or None, joins=None, join_index=None,
        after=Planned(
            following.step_key, following.step_name, following.arguments, following.input,
            following.successor.next_key, list(following.successor.fork) or None, following.joins,
            following.join_index, following.untracked, following.queue, following.rate_limit,
        ),
    )  # fmt: skip


def _occurrences(run_id: str, stem: str) -> int:
    row = database.fetch_one(
        "SELECT step_key FROM plan WHERE run_id = %(run_id)s"
        " AND (step_key = %(stem)s OR starts_with(step_key, %(stem)s || '#'))"
        " ORDER BY length(step_key) DESC, step_key DESC LIMIT 1",
        {"run_id": run_id, "stem": stem},
    )
    return int(row[0].rpartition("#")[2]) if row and "#" in row[0] else int(row is not None)
