"""Any canvas: what its plan computes is what the canvas means, and every node has one place."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from models.plan import InputKind, Plan, PlanNode, Successor
from tasks import Context, group, registry, step, workflow
from tasks.canvas import Canvas, Chain, Signature, chain
from tasks.compile import compile_insertion, compile_plan
from tasks.keys import occurrences
from tasks.workflow import Workflow

NOTHING = object()


@step
def leaf(ctx: Context, *values: Any) -> Any:
    return values


signatures = st.builds(
    lambda number, immutable: leaf.si(number) if immutable else leaf.s(number),
    st.integers(0, 9),
    st.booleans(),
)
canvases: st.SearchStrategy[Canvas] = st.recursive(
    signatures,
    lambda inner: st.one_of(
        st.builds(group, st.lists(inner, max_size=3), tolerant=st.booleans()),
        st.builds(chain, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def flow() -> Iterator[Workflow[...]]:
    with registry.isolated():

        @workflow("flow", version="1")
        def made() -> Canvas:
            return leaf.s()

        yield made


def meaning(canvas: Canvas, value: Any) -> Any:
    """What a canvas computes, read off its structure."""
    if isinstance(canvas, Signature):
        piped = [] if canvas.immutable or value is NOTHING else [value]
        return [*piped, *canvas.args]
    if isinstance(canvas, Chain):
        for link in canvas.links():
            value = meaning(link, value)
        return value
    return [meaning(member, value) for member in canvas.members]


class Walker:
    """Runs a plan the way the engine does: by successors, forks and joins."""

    def __init__(self, *plans: Plan) -> None:
        self.nodes = {node.step_key: node for plan in plans for node in plan.nodes}
        self.runs: Counter[str] = Counter()
        self.gathered: dict[str, dict[int, Any]] = {}
        self.waiting: dict[str, int] = {}

    def start(self, entry: Successor, value: Any = NOTHING) -> Any:
        return self._go(entry, branch="0", value=value)

    def _go(self, entry: Successor, *, branch: str, value: Any) -> Any:
        assert entry.next_key is not None
        if not entry.fork:
            return self._run(self.nodes[entry.next_key], branch=branch, value=value)
        self.waiting[entry.next_key] = len(entry.fork)
        for head in entry.fork:
            node = self.nodes[head]
            assert node.branch.rpartition("/")[0] == branch
            value_of_run = self._run(node, branch=node.branch, value=value)
        return value_of_run

    def _run(self, node: PlanNode, *, branch: str, value: Any) -> Any:
        assert node.branch == branch
        self.runs[node.step_key] += 1
        result = self._result(node, value)
        if node.joins is None and node.successor.next_key is None:
            return result
        if node.joins is None:
            return self._go(node.successor, branch=branch, value=result)
        assert node.successor == Successor()
        assert node.join_index is not None
        arrived = self.gathered.setdefault(node.joins, {})
        assert node.join_index not in arrived
        arrived[node.join_index] = result
        if len(arrived) < self.waiting[node.joins]:
            return None
        return self._run(self.nodes[node.joins], branch=branch.rpartition("/")[0], value=NOTHING)

    def _result(self, node: PlanNode, value: Any) -> Any:
        bound = json.loads(node.arguments)["args"]
        match node.input:
            case InputKind.NONE:
                piped = []
            case InputKind.PREVIOUS:
                piped = [value]
            case InputKind.GATHER:
                arrived = self.gathered[node.step_key]
                piped = [[arrived[index] for index in range(len(arrived))]]
            case InputKind.EMPTY:
                piped = [[]]
        if node.step_name == "onward.gather":
            return piped[0] if piped else NOTHING
        return [*piped, *bound]


def check_one_place_each(walker: Walker) -> None:
    assert set(walker.runs) == set(walker.nodes)
    assert set(walker.runs.values()) == {1}


@given(canvas=canvases)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_plan_computes_what_its_canvas_means(flow: Workflow[...], canvas: Canvas) -> None:
    plan = compile_plan(canvas, workflow=flow)
    walker = Walker(plan)
    assert len(walker.nodes) == len(plan.nodes)
    assert walker.start(plan.entry) == meaning(canvas, NOTHING)
    check_one_place_each(walker)


@given(canvas=canvases, added=canvases, data=st.data())
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_an_insertion_keeps_every_place(
    flow: Workflow[...], canvas: Canvas, added: Canvas, data: st.DataObject
) -> None:
    plan = compile_plan(canvas, workflow=flow)
    after = data.draw(st.sampled_from(list(plan.nodes)))
    more = compile_insertion(
        added,
        workflow=flow,
        branch=after.branch,
        after=after,
        taken=occurrences(node.step_key for node in plan.nodes).get,  # type: ignore[arg-type]
        planned=len(plan.nodes),
    )
    keys = [node.step_key for node in (*plan.nodes, *more.nodes)]
    assert len(set(keys)) == len(keys)
    assert compile_plan(canvas, workflow=flow) == plan  # stable: the same canvas, the same keys
    walker = Walker(plan, more)
    walker.nodes[after.step_key] = replaced(after, more.entry)
    walker.start(plan.entry)
    check_one_place_each(walker)


@given(canvas=canvases)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_branches_of_siblings_never_meet(flow: Workflow[...], canvas: Canvas) -> None:
    plan = compile_plan(canvas, workflow=flow)
    forks = [plan.entry.fork, *(node.successor.fork for node in plan.nodes)]
    branch_of = {node.step_key: node.branch for node in plan.nodes}
    opened = [branch_of[head] for fork in forks for head in fork]
    assert len(set(opened)) == len(opened)


def replaced(node: PlanNode, successor: Successor) -> PlanNode:
    fields = {name: getattr(node, name) for name in PlanNode.__dataclass_fields__}
    return PlanNode(**{**fields, "successor": successor, "joins": None, "join_index": None})
