"""Canvas to plan: keys, branches, joins, limits and circles."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from models.errors import ValueMismatch
from models.plan import ROOT_BRANCH, InputKind, Plan, PlanNode, Successor
from models.settings import settings
from tasks import Context, group, registry, step, workflow
from tasks.canvas import Canvas, Chain, Group
from tasks.compile import compile_plan
from tasks.errors import (
    BindingError,
    DefinitionError,
    PlanCircle,
    PlanError,
    PlanTooDeep,
    PlanTooLong,
    PlanTooWide,
)
from tasks.workflow import Workflow


@step
def read(ctx: Context, uri: str = "u") -> str:
    return uri


@step(kind="llm", queue="llm", rate_limit="30/m")
def think(ctx: Context, doc: Any = None, depth: int = 0) -> Any:
    return doc, depth


@step(untracked=True)
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


def test_a_chain_is_one_branch(flow: Workflow[...]) -> None:
    plan = compile_plan(read.s("x") | think.s() | think.s(depth=2), workflow=flow)
    assert plan.entry == Successor("read")
    first, second, third = plan.nodes
    assert (first.step_key, second.step_key, third.step_key) == ("read", "think", "think#2")
    assert [node.successor.next_key for node in plan.nodes] == ["think", "think#2", None]
    assert [node.input for node in plan.nodes] == [InputKind.NONE, *[InputKind.PREVIOUS] * 2]
    assert json.loads(third.arguments) == {"args": [], "kwargs": {"depth": 2}}
    assert {node.branch for node in plan.nodes} == {ROOT_BRANCH}


def test_a_node_carries_what_its_step_says(flow: Workflow[...]) -> None:
    one = compile_plan(think.s(), workflow=flow).nodes[0]
    assert (one.step_name, one.queue, one.kind) == ("flow.think", "llm.flow@3", "llm")
    assert (one.rate_limit, one.throttle) == (0.5, "flow.think")
    other = compile_plan(think.s().set(queue="steps", key="draft"), workflow=flow).nodes[0]
    assert (other.queue, other.step_key) == ("steps.flow@3", "draft")
    assert compile_plan(join.s([]), workflow=flow).nodes[0].untracked


def test_a_queue_nobody_listens_to_is_refused(flow: Workflow[...]) -> None:
    with pytest.raises(PlanError, match=r"'gpu' is none of the queues of flow \(llm, steps\)"):
        compile_plan(think.s().set(queue="gpu"), workflow=flow)


def test_a_group_joins_in_the_step_behind_it(flow: Workflow[...]) -> None:
    plan = compile_plan(
        read.s() | group(think.s(), think.s() | think.s()) | join.s(), workflow=flow
    )
    by_key = nodes(plan)
    assert by_key["read"].successor == Successor("join", ("think", "think#2"))
    assert [by_key[key].branch for key in ("think", "think#2", "think#3")] == [
        "0/1.0",
        "0/1.1",
        "0/1.1",
    ]
    assert (by_key["think"].joins, by_key["think"].join_index) == ("join", 0)
    assert (by_key["think#2"].joins, by_key["think#2"].successor.next_key) == (None, "think#3")
    assert (by_key["think#3"].joins, by_key["think#3"].join_index) == ("join", 1)
    assert by_key["join"].input is InputKind.GATHER
    assert not by_key["join"].tolerant


def test_a_tolerant_group_says_so_at_its_join(flow: Workflow[...]) -> None:
    plan = compile_plan(group(think.s(), tolerant=True) | join.s() | read.si(), workflow=flow)
    assert [node.step_key for node in plan.nodes if node.tolerant] == ["join"]
    assert plan.entry == Successor("join", ("think",))


def test_a_group_without_a_step_behind_it_gets_one(flow: Workflow[...]) -> None:
    last = compile_plan(read.s() | group(think.s()), workflow=flow).nodes[-1]
    assert (last.step_key, last.step_name, last.queue) == (
        "gather",
        "onward.gather",
        "steps.flow@3",
    )
    between = compile_plan(group(think.s()) | group(think.s()) | join.s(), workflow=flow)
    assert nodes(between)["gather"].successor == Successor("join", ("think#2",))


def test_a_member_that_begins_and_ends_with_a_group(flow: Workflow[...]) -> None:
    plan = compile_plan(read.s() | group(group(think.s(), think.s()), think.s()), workflow=flow)
    by_key = nodes(plan)
    assert by_key["read"].successor == Successor("gather#3", ("gather", "think#3"))
    assert by_key["gather"].successor == Successor("gather#2", ("think", "think#2"))
    assert by_key["gather"].input is InputKind.PREVIOUS
    assert by_key["think"].branch == "0/1.0/2.0"
    assert (by_key["gather#2"].joins, by_key["gather#2"].join_index) == ("gather#3", 0)


def test_nothing_is_piped_through_a_group_that_got_nothing(flow: Workflow[...]) -> None:
    by_key = nodes(compile_plan(group(group(read.s("x"))), workflow=flow))
    assert by_key["gather"].input is InputKind.NONE
    assert by_key["read"].input is InputKind.NONE


def test_an_empty_group_is_an_empty_list(flow: Workflow[...]) -> None:
    between = compile_plan(read.s() | group() | join.s(), workflow=flow)
    assert nodes(between)["read"].successor == Successor("join")
    assert nodes(between)["join"].input is InputKind.EMPTY
    alone = compile_plan(group(), workflow=flow)
    assert alone.entry == Successor("gather")
    assert alone.nodes[0].input is InputKind.EMPTY


def test_an_immutable_signature_takes_nothing_even_as_a_join(flow: Workflow[...]) -> None:
    plan = compile_plan(group(think.s()) | read.si("x"), workflow=flow)
    assert nodes(plan)["read"].input is InputKind.NONE
    assert nodes(plan)["think"].joins == "read"


@pytest.mark.parametrize(
    ("canvas", "error", "says"),
    [
        (join.s(), BindingError, "step join: missing a required argument: 'docs'"),
        (read.s() | read.s("x"), BindingError, "step read: too many positional arguments"),
        (read.s(uri="x", deep=1), BindingError, "'deep'"),
        (read.s(5), ValueMismatch, "step read: uri does not fit"),
        (think.s(depth="x"), ValueMismatch, "step think: depth does not fit"),
    ],
)
def test_values_that_no_step_could_take_are_refused_at_submission(
    flow: Workflow[...], canvas: Canvas, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as refused:
        compile_plan(canvas, workflow=flow)
    assert says in str(refused.value)


def test_c26_a_key_that_comes_back_is_a_circle_named(flow: Workflow[...]) -> None:
    draft, review = read.s().set(key="draft"), think.s().set(key="review")
    with pytest.raises(PlanCircle, match=r"circle: draft -> review -> draft; .*Then\(value"):
        compile_plan(draft | review | think.s().set(key="draft"), workflow=flow)
    with pytest.raises(PlanCircle, match="circle: draft -> draft"):
        compile_plan(draft | think.s().set(key="draft"), workflow=flow)
    with pytest.raises(PlanCircle, match="circle: draft -> think -> join -> draft"):
        compile_plan(draft | group(think.s()) | join.s() | draft, workflow=flow)
    long = draft | group(think.s()) | join.s()
    for _ in range(9):
        long = long | think.s()
    with pytest.raises(PlanCircle, match=r"draft -> think -> .* -> \.\.\. -> think#10 -> draft"):
        compile_plan(long | draft, workflow=flow)


def test_a_key_in_two_parallel_branches_is_refused_as_what_it_is(flow: Workflow[...]) -> None:
    twice = think.s().set(key="draft")
    with pytest.raises(PlanError, match="'draft' in two parallel branches") as refused:
        compile_plan(group(twice, twice), workflow=flow)
    assert not isinstance(refused.value, PlanCircle)


def test_a_chosen_key_counts_among_generated_ones(flow: Workflow[...]) -> None:
    plan = compile_plan(think.s().set(key="read") | think.s() | read.si(), workflow=flow)
    assert [node.step_key for node in plan.nodes] == ["read", "think", "read#2"]


def test_a_group_that_contains_itself_is_a_circle(flow: Workflow[...]) -> None:
    knot = Group(())
    object.__setattr__(knot, "members", (read.s() | knot,))
    with pytest.raises(PlanCircle, match="a group in the plan of flow contains itself"):
        compile_plan(knot, workflow=flow)


def test_limits_name_themselves_and_what_was_found(flow: Workflow[...], limits: None) -> None:
    with pytest.raises(PlanTooWide, match=r"9 members; the limit is 8 \(ONWARD_GROUP_LIMIT\)"):
        compile_plan(group(think.s() for _ in range(9)), workflow=flow)
    deep: Canvas = think.s()
    for _ in range(5):
        deep = group(deep)
    with pytest.raises(PlanTooDeep, match=r"5 deep or more; the limit is 4 \(ONWARD_DEPTH_LIMIT\)"):
        compile_plan(deep, workflow=flow)
    doubled = Chain((think.s(),))
    for _ in range(60):  # 2 ** 60 links, were they laid out before they are counted
        doubled = doubled | doubled
    with pytest.raises(PlanTooLong, match=r"31 steps or more; the limit is 30 \(ONWARD_PLAN_LIMIT"):
        compile_plan(doubled, workflow=flow)


def test_c26_two_hundred_deep_is_refused_whatever_the_setting(
    flow: Workflow[...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_DEPTH_LIMIT", "1000000")
    settings.cache_clear()
    deep: Canvas = think.s()
    for _ in range(5000):
        deep = group(deep)
    with pytest.raises(PlanTooDeep, match="201 deep or more; the limit is 200"):
        compile_plan(deep, workflow=flow)
    monkeypatch.undo()
    settings.cache_clear()


def test_c26_twenty_thousand_in_a_row_compile(flow: Workflow[...]) -> None:
    long: Canvas = read.s()
    for _ in range(19_999):
        long = long | think.s()
    plan = compile_plan(long, workflow=flow)
    assert len(plan.nodes) == settings().plan_limit
    assert plan.nodes[-1].step_key == "think#19999"


def test_what_is_no_canvas_is_no_plan(flow: Workflow[...]) -> None:
    with pytest.raises(DefinitionError, match="write read"):
        compile_plan(read, workflow=flow)  # type: ignore[arg-type]
