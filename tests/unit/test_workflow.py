"""``@workflow``: its input, what it may return, what it is called, and when its digests change."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tasks import Context, group, registry, step, workflow
from tasks.canvas import Canvas
from tasks.errors import BindingError, DefinitionError, PlanCircle, PlanError
from tasks.workflow import Workflow


class Scope(BaseModel):
    pages: int
    languages: list[str] = []


@step
def read(ctx: Context, uri: str, scope: Scope | None = None) -> str:
    return uri


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def review(uri: str, scope: Scope, *, deep: bool = False) -> Canvas:
    return read.s(uri, scope=scope)


def test_input_is_an_object_of_named_values_and_arrives_typed() -> None:
    flow = workflow("review", version="3")(review)
    assert flow.bind({"uri": "a", "scope": {"pages": 3}}) == {"uri": "a", "scope": Scope(pages=3)}
    stored = '{"deep":true,"scope":{"pages":3,"languages":[]},"uri":"a"}'
    assert flow.input_text("a", scope=Scope(pages=3), deep=True) == stored
    node = flow.plan("a", Scope(pages=3)).nodes[0]
    assert node.arguments == '{"args":["a"],"kwargs":{"scope":{"pages":3,"languages":[]}}}'


def test_all_that_is_wrong_with_an_input_is_named_at_once() -> None:
    flow = workflow("review", version="3")(review)
    with pytest.raises(BindingError) as refused:
        flow.bind({"scope": {"pages": "many"}, "url": "a"})
    message = str(refused.value)
    for part in ("input of review", "`uri` is missing", "`url` is unknown", "scope", "pages"):
        assert part in message
    with pytest.raises(BindingError, match="too many positional arguments"):
        flow.plan("a", Scope(pages=1), "b")  # type: ignore[call-arg, arg-type]
    with pytest.raises(BindingError, match="multiple values for argument 'uri'"):
        flow.plan("a", uri="b")  # type: ignore[call-arg, misc]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "workflow odd returned None: it must return its plan"),
        (read, r"write read\.s\("),
        ([read.s("a")], "cannot stand in a plan"),
    ],
)
def test_a_function_that_returns_no_plan_is_told_what_to_return(returned: Any, says: str) -> None:
    @workflow("odd", version="1")
    def odd() -> Any:
        return returned

    with pytest.raises(PlanError, match=says):
        odd.plan()


def test_c26_a_workflow_that_calls_itself_is_a_circle() -> None:
    @workflow("alone", version="1")
    def alone() -> Canvas:
        return read.s("x") | alone()

    with pytest.raises(PlanCircle, match=r"circle: alone -> alone; .*Then\(value"):
        alone.plan()


def test_c26_workflows_that_call_each_other_are_a_circle() -> None:
    @workflow("first", version="1")
    def first() -> Canvas:
        return group(second())

    @workflow("second", version="1")
    def second() -> Canvas:
        return first() | read.s()

    @workflow("outer", version="1")
    def outer() -> Canvas:
        return second()

    with pytest.raises(PlanCircle, match="circle: second -> first -> second;"):
        outer.plan()
    with pytest.raises(PlanCircle, match="circle: first -> second -> first;"):
        first.plan()


def takes_rest(*uris: str) -> Canvas:
    return group(read.s(uri) for uri in uris)


async def is_async() -> Any:
    return read.s("a")


def yields() -> Any:
    yield read.s("a")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (takes_rest, r"\*uris"),
        (is_async, "write a plain def"),
        (yields, "a workflow returns one value"),
        (lambda: read.s("a"), "a lambda has no name"),
    ],
)
def test_functions_that_cannot_be_workflows_are_refused(function: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        workflow("odd", version="1")(function)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": review}, "needs a name and a version"),
        ({"name": "a b"}, "workflow name 'a b'"),
        ({"name": "a@1"}, "workflow name 'a@1'"),
        ({"name": "onward"}, "reserved"),
        ({"name": "prüfung"}, "ASCII"),
        ({"version": 3}, "3 is not a version"),
        ({"compatible_with": (2,)}, "2 is not a version"),
        ({"steps": [review]}, "steps= takes steps"),
        ({"queues": ["a b"]}, "queues='a b'"),
    ],
)
def test_names_and_versions_that_could_not_be_kept_are_refused(
    arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(DefinitionError, match=says):
        workflow(**{"name": "review", "version": "1", **arguments})(review)


def test_two_steps_of_one_name_are_refused_with_both_places() -> None:
    other = step(name="twice.read")(echo)

    @workflow("twice", version="1")
    def twice() -> Canvas:
        return read.s("a") | other.s()

    with pytest.raises(DefinitionError, match=r"two steps called twice\.read"):
        twice.plan()


def echo(ctx: Context, value: str) -> str:
    return value


def made(function: Any, *, options: dict[str, Any] | None = None) -> Workflow[...]:
    stepped = step(**(options or {}))(function)

    def flow(uri: str) -> Canvas:
        return stepped.s(uri)

    with registry.isolated():
        return workflow("flow", version="1")(flow)


def test_the_interface_digest_changes_with_what_a_stored_plan_depends_on() -> None:
    def act(ctx: Context, uri: str) -> str:
        return uri

    base = made(act).interface_digest
    assert made(act, options={"max_retries": 9, "queue": "llm"}).interface_digest == base

    def act_reworded(ctx: Context, uri: str) -> str:
        """Another body, the same interface."""
        return uri * 2

    act_reworded.__name__ = "act"
    assert made(act_reworded).interface_digest == base
    assert made(act_reworded).code_digest != made(act).code_digest

    def other_result(ctx: Context, uri: str) -> int:
        return len(uri)

    def other_parameter(ctx: Context, url: str) -> str:
        return url

    def optional(ctx: Context, uri: str = "") -> str:
        return uri

    def act_renamed(ctx: Context, uri: str) -> str:
        return uri

    for changed in (other_result, other_parameter, optional):
        changed.__name__ = "act"
    digests = {
        made(f).interface_digest for f in (other_result, other_parameter, optional, act_renamed)
    }
    assert len({base, *digests}) == 5


def test_digests_are_the_same_in_another_process() -> None:
    program = (
        "from tests.unit.test_workflow import echo, made\n"
        "flow = made(echo)\n"
        "print(flow.interface_digest, flow.code_digest)"
    )
    shown = subprocess.run(  # hash() is salted per process: an order that hangs on it shows here
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    flow = made(echo)
    assert shown == [flow.interface_digest, flow.code_digest]


def test_the_authoring_api_loads_neither_celery_nor_a_database_driver() -> None:
    program = (
        "import sys, tasks\n"
        "print(sorted({'celery', 'kombu', 'sqlalchemy', 'psycopg', 'redis'} & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"
