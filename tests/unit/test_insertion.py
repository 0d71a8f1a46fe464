"""``Then``: steps added to a run that is under way."""

from collections.abc import Iterator
from typing import Any

import pytest

from models.plan import InputKind, Plan, PlanNode, Successor
from models.settings import settings
from tasks import Context, group, registry, step, workflow
from tasks.canvas import Canvas
from tasks.compile import compile_insertion, compile_plan
from tasks.errors import PlanCircle, PlanTooDeep, PlanTooLong
from tasks.keys import occurrences
from tasks.workflow import Workflow


@step
def read(ctx: Context, uri: str = "u") -> str:
    return uri


@step
def think(ctx: Context, doc: Any = None, depth: int = 0) -> Any:
    return doc, depth


@step
def join(ctx: Context, docs: list[Any]) -> Any:
    return docs


@pytest.fixture
def flow() -> Iterator[Workflow[...]]:
    with registry.isolated():

        @workflow("flow", version="3")
        def made() -> Canvas:
            return read.s() | think.s()

        yield made


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"PLAN": 30, "GROUP": 8, "DEPTH": 4}.items():
        monkeypatch.setenv(f"ONWARD_{name}_LIMIT", str(value))
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


def nodes(plan: Plan) -> dict[str, PlanNode]:
    return {node.step_key: node for node in plan.nodes}


def inserted(flow: Workflow[...], canvas: Canvas, *, plan: Plan, after: str) -> Plan:
    by_key = nodes(plan)
    return compile_insertion(
        canvas,
        workflow=flow,
        branch=by_key[after].branch,
        after=by_key[after],
        taken=occurrences(by_key),
        planned=len(by_key),
    )


def test_inserted_steps_stand_between_a_step_and_what_followed_it(flow: Workflow[...]) -> None:
    plan = compile_plan(read.s() | think.s() | group(read.si()) | join.s(), workflow=flow)
    added = inserted(flow, read.si("x") | think.s(), plan=plan, after="think")
    assert added.entry == Successor("read#3")
    assert [node.step_key for node in added.nodes] == ["read#3", "think#2"]
    assert added.nodes[0].input is InputKind.NONE
    assert added.nodes[1].successor == Successor("join", ("read#2",))


def test_the_first_inserted_step_gets_the_value(flow: Workflow[...]) -> None:
    plan = compile_plan(think.s(), workflow=flow)
    added = inserted(flow, think.s(), plan=plan, after="think")
    assert (added.nodes[0].input, added.nodes[0].successor) == (InputKind.PREVIOUS, Successor())


def test_an_inserted_tail_takes_over_the_join_of_its_member(flow: Workflow[...]) -> None:
    plan = compile_plan(group(read.s(), think.s()) | join.s(), workflow=flow)
    added = inserted(flow, group(think.s(), think.s()), plan=plan, after="think")
    assert added.entry == Successor("gather", ("think#2", "think#3"))
    assert [node.branch for node in added.nodes] == [
        "0/1.1/think.1.0",
        "0/1.1/think.1.1",
        "0/1.1",
    ]
    assert (added.nodes[-1].joins, added.nodes[-1].join_index) == ("join", 1)


def test_c26_a_step_that_adds_a_key_the_run_has_is_a_circle(flow: Workflow[...]) -> None:
    plan = compile_plan(read.s().set(key="draft") | think.s(), workflow=flow)
    with pytest.raises(PlanCircle, match=r"step 'think' adds .*draft -> \.\.\. -> think -> draft"):
        inserted(flow, think.s() | read.s().set(key="draft"), plan=plan, after="think")
    with pytest.raises(PlanCircle, match="adds a step with the key 'think'"):
        inserted(flow, think.s().set(key="think"), plan=plan, after="think")


def test_inserted_steps_count_towards_the_limits_of_the_run(
    flow: Workflow[...], limits: None
) -> None:
    plan = compile_plan(group(group(group(think.s()))) | join.s(), workflow=flow)
    with pytest.raises(PlanTooDeep, match="5 deep"):
        inserted(flow, group(group(think.s())), plan=plan, after="think")
    long = think.s() | think.s()
    for _ in range(26):
        long = long | think.s()
    row = compile_plan(long, workflow=flow)
    with pytest.raises(PlanTooLong, match="31 steps or more"):
        inserted(flow, think.s() | think.s() | think.s(), plan=row, after="think")
