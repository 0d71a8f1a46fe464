"""Which agents a process has: loading their packages, finding their steps, looking them up."""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent

import pytest

from tasks import registry
from tasks.errors import AgentsError, DefinitionError, StepNotRegistered

WriteModule = Callable[[str, str], None]

AGENT = """
from tasks import Context, Then, group, step, workflow

@step
def read(ctx: Context, uri: str) -> str:
    return uri

@workflow("review", version="3", compatible_with=("2",))
def review(uri: str):
    return read.s(uri)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Modules of a user, gone with the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write_module(name: str, text: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    with registry.isolated():
        yield write_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) is None or str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def steps_of(name: str) -> list[str]:
    return sorted(registry.get_workflow(name).steps)


def test_importing_a_package_registers_its_workflows(write: WriteModule) -> None:
    write("acme_one", AGENT)
    write("acme_two", AGENT.replace('"review"', '"archive"'))
    loaded = registry.load_agents(" acme_one, acme_two ,")
    assert [workflow.name for workflow in loaded] == ["review", "archive"]
    assert list(registry.workflows()) == ["review", "archive"]
    review = registry.get_workflow("review")
    assert review.queues == ("steps.review@3", "steps.review@2")
    bound = registry.step_named("review.read")
    assert (bound.workflow, bound.version, bound.queue) == ("review", "3", "steps.review@3")
    assert registry.step_named("onward.gather", "archive").workflow == "archive"
    assert registry.step_named("onward.gather").builtin


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("acme_missing", None, "ONWARD_AGENTS names acme_missing, but there is no module"),
        ("acme_missing.sub", None, "there is no module acme_missing:"),
        ("acme_lacks", "import not_there", "imports not_there, which is not installed"),
        ("acme_breaks", "1 / 0", r"acme_breaks .* cannot be loaded: ZeroDivisionError"),
        ("acme_syntax", "def", "cannot be loaded: SyntaxError"),
        ("acme_empty", "x = 1", "acme_empty has no workflow"),
        ("acme_wrong", AGENT.replace("@step", "@step(retries=1)"), "unknown option 'retries'"),
    ],
)
def test_a_package_that_cannot_serve_is_one_clear_sentence(
    write: WriteModule, name: str, text: str | None, says: str
) -> None:
    if text is not None:
        write(name, text)
    with pytest.raises(AgentsError, match=says):
        registry.load_agents(name)


def test_two_workflows_of_one_name_are_refused_with_both_places(write: WriteModule) -> None:
    write("acme_old", AGENT)
    write("acme_new", AGENT.replace('version="3"', 'version="4"'))
    with pytest.raises(AgentsError, match=r"version 3 in acme_old:\d+ and version 4 in acme_new"):
        registry.load_agents("acme_old,acme_new")


def test_a_package_without_own_workflows_may_bring_anothers(write: WriteModule) -> None:
    write("acme_flows", AGENT)
    write("acme_front", "from acme_flows import review")
    assert len(registry.load_agents("acme_front")) == 1


def test_installed_packages_bring_agents_by_entry_point(
    write: WriteModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("acme_dist", AGENT)
    write("acme_dist_gone", AGENT)
    entry = EntryPoint(name="acme", value="acme_dist", group="onward.agents")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [entry])
    assert [workflow.name for workflow in registry.load_agents("")] == ["review"]


def test_unknown_names_list_what_there_is(write: WriteModule) -> None:
    write("acme_known", AGENT)
    registry.load_agents("acme_known")
    with pytest.raises(AgentsError, match="no workflow is called 'revue'; loaded: review"):
        registry.get_workflow("revue")
    with pytest.raises(AgentsError, match=r"no step is called 'review\.write' in any loaded"):
        registry.step_named("review.write")


WIDE = """
        import acme_shared_closed
        import acme_shared_then_only as more
        from acme_shared_by_helper import by_helper
        from acme_shared_by_method import by_method
        from acme_shared_default import default
        from acme_shared_in_table import in_table
        from tasks import Context, Then, step, workflow

        TABLE = {"a": in_table.s()}
        SIZE = {n: n for n in range(100_000)}

        def _closed():
            inner = acme_shared_closed.closed
            return lambda: inner.s()

        class Parts:
            @staticmethod
            def one():
                return by_method.s()

        def _helper(first=default):
            return by_helper.s() | first.s() | Parts.one()

        @workflow("wide", version="1")
        def wide(value: str):
            parts = [made() for made in (_closed(),)]
            return start.s(value) | parts[0] | TABLE["a"] | _helper()

        @step
        def start(ctx: Context, value: str) -> str:
            if SIZE:
                return Then(value, more.then_only.s())
            return value

        @step
        def never_named(ctx: Context) -> None: ...
        """


def test_steps_are_found_wherever_the_code_names_them(write: WriteModule) -> None:
    for name in ("beside", "closed", "then_only", "in_table", "by_helper", "by_method", "default"):
        write(
            f"acme_shared_{name}",
            f"""
            from tasks import Context, step
            @step
            def {name}(ctx: Context, value: str) -> str:
                return value
            """,
        )
    write("acme_wide", WIDE)
    registry.load_agents("acme_wide")
    own = ["never_named", "start"]
    found = sorted([*own, "by_helper", "by_method", "closed", "default", "in_table", "then_only"])
    assert steps_of("wide") == ["onward.gather", *(f"wide.{name}" for name in found)]
    assert len(registry.get_workflow("wide").plan("x").nodes) == 6


def test_a_workflow_may_be_part_of_another_and_its_steps_get_two_names(write: WriteModule) -> None:
    write("acme_part", AGENT)
    write(
        "acme_whole",
        """
        from acme_part import review
        from tasks import group, workflow

        @workflow("whole", version="1")
        def whole(uris: list[str]):
            return group(review(uri) for uri in uris)
        """,
    )
    registry.load_agents("acme_whole")
    plan = registry.get_workflow("whole").plan(["a", "b"])
    assert [node.step_name for node in plan.nodes] == ["whole.read"] * 2 + ["onward.gather"]
    assert registry.step_named("review.read").step is registry.step_named("whole.read").step


def test_a_step_that_reading_the_code_cannot_find_is_named(write: WriteModule) -> None:
    write("acme_hidden_steps", AGENT.partition("@workflow")[0])
    flow = """
        from importlib import import_module
        from tasks import workflow
        {extra}

        @workflow("hidden", version="1"{steps})
        def hidden(uri: str):
            return import_module("acme_hidden_steps").__dict__["read"].s(uri)
        """
    write("acme_hidden", flow.format(extra="", steps=""))
    registry.load_agents("acme_hidden")
    with pytest.raises(
        StepNotRegistered, match=r"step read \(acme_hidden_steps\.read\).*steps=\[r"
    ):
        registry.get_workflow("hidden").plan("x")
    named = flow.format(extra="from acme_hidden_steps import read", steps=", steps=[read]")
    write("acme_named", named.replace('"hidden"', '"named"'))
    registry.load_agents("acme_named")
    assert registry.get_workflow("named").plan("x").nodes[0].step_name == "named.read"


def test_one_wire_name_for_two_workflows_is_refused_where_it_matters(write: WriteModule) -> None:
    shared = AGENT.replace("@step", '@step(name="acme.read")')
    write("acme_share_a", shared)
    write("acme_share_b", shared.replace('"review"', '"archive"'))
    with pytest.raises(DefinitionError, match=r"review and archive, have a step named acme\.read"):
        registry.load_agents("acme_share_a,acme_share_b")


def test_a_module_imported_again_replaces_its_workflow(write: WriteModule) -> None:
    write("acme_again", AGENT)
    registry.load_agents("acme_again")
    first = registry.get_workflow("review")
    del sys.modules["acme_again"]
    registry.load_agents("acme_again")
    assert registry.get_workflow("review") is not first
    assert registry.step_named("review.read").step is not first.steps["review.read"].step
