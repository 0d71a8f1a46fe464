"""Tools: what may be declared, what is refused at import, how a name finds one, what a request becomes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from models.settings import settings
from tasks import Absent, Effect, Found, Refused, Tool, Undecided, tool, tool_registry
from tasks.errors import DefinitionError
from tasks.tools import Looked, register_instance, tool_named, tools


class Report(BaseModel):
    title: str
    pages: int = 1
    requested_at: str = ""
    credentials: str = ""


class Filing(BaseModel):
    filing_id: str


HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone with it."""
    monkeypatch.setattr(tool_registry, "_tools", dict(tool_registry._tools))


def _yielding(_self: object, request: object, *, key: str) -> Iterator[object]:
    yield request, key


def make(base: type[Any] = Tool, **attributes: Any) -> Any:
    """A tool class of this test."""
    facts = {"name": "t.tool", "effect": Effect.ONCE, "execute": lambda *_, **__: None}
    return type("Made", (base,), {**facts, **attributes})


def test_a_class_is_known_by_its_name_and_made_without_arguments() -> None:
    kind = make(name="t.known")
    assert isinstance(tool_named("t.known"), kind)
    assert tools()["t.known"] is kind
    with pytest.raises(LookupError, match=r"no tool is called 't\.other' here; loaded: "):
        tool_named("t.other")


def test_an_abstract_base_is_no_tool() -> None:
    class Base(Tool[Report, Filing], abstract=True):
        effect = Effect.ONCE

    assert Base not in tools().values()
    assert make(Base, name="t.concrete")().request_type.annotation is Report


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"name": None}, "name = ... is missing"),
        ({"name": "a name"}, "must be ASCII letters"),
        ({"effect": None}, "effect = ... is missing"),
        ({"effect": "once"}, "effect='once' is not one of pure, idempotent, queryable, once"),
        ({"effect": Effect.IDEMPOTENT}, r"key_retention = timedelta\(hours=24\)"),
        ({"key_retention": HOUR}, "key_retention belongs to IDEMPOTENT tools"),
        ({"effect": Effect.QUERYABLE}, "a QUERYABLE tool needs def lookup"),
        ({"timeout": 5}, "timeout=5 must be a timedelta of 0 or more"),
        ({"timeout": -HOUR}, "must be a timedelta of 0 or more"),
        ({"max_request_lifetime": "1 h"}, "must be a timedelta"),
        ({"volatile": "requested_at"}, "volatile takes a set of field names"),
        ({"secret": "credentials"}, "secret takes a set of field names"),
        ({"rate_limit": "often"}, "is not a rate"),
        ({"timeout": timedelta(0)}, "leaves no time for a call"),
        ({"version": 2}, "version=2 must be text"),
        ({"execute": lambda _self, request: request}, r"called with \(request, \*, key\)"),
        ({"lookup": lambda _self, _request: None}, r"lookup is called with"),
        ({"compensate": lambda _self, _request, *, key: key}, r"\(request, result, \*, key\)"),
        ({"execute": _yielding}, "is a generator"),
        ({"__init__": lambda _self, url="": str(url)}, "would ask another place"),
        ({"__init__": lambda _self, **options: str(options)}, "made with options"),
        (
            {"__init__": lambda _self, url: str(url)},
            "one made with url: read them from the environment",
        ),
    ],
)
def test_what_could_never_be_recovered_is_refused_at_import(
    attributes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem):
        make(**attributes)


def test_two_tools_of_one_name_are_refused_and_the_same_again_is_not() -> None:
    def execute(request: Report, *, key: str) -> Filing:
        return Filing(filing_id=key)

    class One(Tool[Report, Filing]):
        name, effect = "t.twice", Effect.ONCE

    assert tools()["t.twice"] is One
    with pytest.raises(DefinitionError, match=r"two tools are called 't\.twice'.*rename one"):
        make(name="t.twice")
    for _ in range(2):  # a module that is loaded again
        tool("t.function", effect=Effect.ONCE)(execute)


def test_functions_of_one_factory_need_names_of_their_own() -> None:
    def at(place: str) -> None:
        @tool("t.of-factory", effect=Effect.ONCE)
        def by_place(request: Report, *, key: str) -> str:
            return f"{place}{request}{key}"

    at("here")
    at("here")
    with pytest.raises(DefinitionError, match=r"two tools are called 't\.of-factory'.*differently"):
        at("there")


def test_a_tool_configured_by_its_constructor_registers_the_instance() -> None:
    class Configured(Tool[Report, Filing], abstract=True):
        effect = Effect.ONCE

        def __init__(self, url: str) -> None:
            self.name = "t.configured"
            self.url = url

    made = Configured("http://localhost")
    register_instance(made)
    assert tool_named("t.configured") is made


def test_a_function_is_a_tool_with_the_other_functions_beside_it() -> None:
    @tool("t.stamp", effect=Effect.QUERYABLE, version="3", timeout=HOUR)
    def stamp(request: Report, *, key: str) -> Filing:
        return Filing(filing_id=key)

    assert (stamp.can_look_up, stamp.can_compensate) == (False, False)

    @stamp.look_up_with
    def find(request: Report, *, key: str) -> Looked:
        return Found(Filing(filing_id=key))

    @stamp.compensate_with
    def withdraw(request: Report, result: Filing, *, key: str) -> str:
        return f"{result.filing_id} by {key}"

    report, filing = Report(title="t"), Filing(filing_id="k")
    assert tool_named("t.stamp") is stamp
    assert (stamp.can_look_up, stamp.can_compensate) == (True, True)
    assert stamp.execute(report, key="k") == filing
    assert stamp.lookup(report, key="k") == Found(filing)
    assert stamp.compensate(report, filing, key="u") == "k by u"
    assert (stamp.request_type.annotation, stamp.result_type.annotation) == (Report, Filing)
    assert stamp.promise.timeout == 3600
    assert find(report, key="k")
    assert withdraw(report, filing, key="u")


def test_an_unknown_option_of_a_function_is_named() -> None:
    with pytest.raises(DefinitionError, match="unknown options retention"):
        tool("t.typo", effect=Effect.ONCE, retention=HOUR)


def test_types_come_from_the_class_or_from_the_annotations_of_execute() -> None:
    class ByClass(Tool[Report, Filing]):
        name, effect = "t.by-class", Effect.ONCE

    class ByFunction(Tool[Any, Any]):
        name, effect = "t.by-function", Effect.ONCE

        def execute(self, request: Report, *, key: str) -> Filing:
            return Filing(filing_id=key)

    class Below(ByClass):
        name = "t.below"

    for kind in (ByClass, Below):
        made = kind()
        assert (made.request_type.annotation, made.result_type.annotation) == (Report, Filing)
    assert ByFunction().request_type.annotation is Any  # said so, in the class


def test_a_promise_is_in_seconds_and_says_when_absence_counts() -> None:
    made = make(
        name="t.promise", effect=Effect.IDEMPOTENT, key_retention=HOUR, max_request_lifetime=timedelta(minutes=1),
        consistency_window=timedelta(seconds=20), timeout=timedelta(seconds=5), rate_limit="30/m",
    )()  # fmt: skip
    assert made.promise.key_retention == 3600
    assert made.promise.absent_after == 5 + 60 + 20
    assert made.per_second == 0.5
    undeclared = make(name="t.undeclared")()
    assert undeclared.promise.absent_after is None
    assert undeclared.promise.timeout == settings().tool_timeout
    assert undeclared.per_second is None


def test_undone_means_by_default_that_nothing_is_there_any_more() -> None:
    class Seen(Tool[Report, Filing]):
        name, effect = "t.seen", Effect.QUERYABLE
        found: ClassVar[list[Looked]] = []

        def lookup(self, request: Report, *, key: str) -> Looked:
            return self.found.pop(0)

    Seen.found = [Absent(), Found(Filing(filing_id="1")), Undecided("provisioning")]
    answers = [
        Seen().lookup_compensation(Report(title="t"), Filing(filing_id="1"), key="k")
        for _ in range(3)
    ]
    assert answers == [Found(None), Absent(), Undecided("provisioning")]

    class Awaited(Seen):
        name = "t.awaited"

        async def lookup(self, request: Report, *, key: str) -> Looked:  # type: ignore[override]
            return self.found.pop(0)

    Seen.found = [Absent(), Found(Filing(filing_id="1"))]
    undone = [
        Awaited().lookup_compensation(Report(title="t"), Filing(filing_id="1"), key="k")
        for _ in range(2)
    ]
    assert undone == [Found(None), Absent()]


def test_what_a_tool_says_with_an_exception_is_a_refusal_or_not() -> None:
    from tasks import NotSent, Unanswered  # noqa: PLC0415 - what an author would import

    assert issubclass(NotSent, Refused)
    assert not issubclass(Unanswered, Refused)


def test_of_many_loaded_tools_only_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a caller says after the list, what to do, is read to its end."""
    many = {f"many.t{number:03}": make() for number in range(400)}
    monkeypatch.setattr(tool_registry, "_tools", many)
    with pytest.raises(LookupError, match=r"loaded: many\.t000, .*t011 and 388 more$"):
        tool_named("many.gone")
