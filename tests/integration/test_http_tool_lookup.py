"""Looking up over HTTP: pages, renamed things, several, late, provisioning, and look-ups that fail."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from tasks.toolkit.http import (
    Cursor,
    HttpTool,
    LinkHeader,
    LookUp,
    NextLink,
    PageNumber,
)
from tasks.toolkit.lookup import LookUpFailed
from tasks.tools import Absent, Effect, Found, Unanswered, Undecided
from tests.support.fx import Fx

_numbers = count(1)
BY_KEY: dict[str, Any] = {
    "url": "${FX_URL}/resources?key={key}", "items": "items", "match": {"key": "{key}"},
    "status": "status",
}  # fmt: skip
BY_NAME: dict[str, Any] = {
    "url": "${FX_URL}/resources", "items": "items",
    "match": {"request.name": "{name}", "request.amount": "{amount}"},
}  # fmt: skip


class Order(BaseModel):
    name: str
    amount: int = 1


class Made(BaseModel):
    id: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fx]:
    with Fx(tmp_path_factory.mktemp("fx")) as fx:
        yield fx


@pytest.fixture
def fx(running: Fx, monkeypatch: pytest.MonkeyPatch) -> Fx:
    monkeypatch.setenv("FX_URL", running.url)
    running.behave()
    running.clear_faults()
    return running


def a_tool(**asked: Any) -> HttpTool[Any, Any]:
    return HttpTool(
        f"http.look-{next(_numbers)}", effect=Effect.QUERYABLE, url="${FX_URL}/plain/{name}",
        request=Order, result=Made, timeout=timedelta(seconds=1), lookup=LookUp(**asked),
    )  # fmt: skip


def look(tool: HttpTool[Any, Any], name: str, key: str, amount: int = 1) -> Any:
    return tool.lookup(Order(name=name, amount=amount), key=key)


def test_what_was_answered_is_what_is_found(fx: Fx) -> None:
    tool = a_tool(**BY_KEY)
    assert look(tool, "found", "k-1") == Absent()
    made = tool.execute(Order(name="found"), key="k-1")
    assert look(tool, "found", "k-1") == Found(made)
    assert look(tool, "found", "k-10") == Absent()
    assert (fx.calls("found"), fx.lookups("found")) == (1, 1), "an unknown key belongs to no name"


def test_one_resource_by_its_own_address(fx: Fx) -> None:
    made = fx.make("direct", key="k", body={"name": "direct"})
    tool = a_tool(url="${FX_URL}/resources/{name}", match={"key": "{key}"})
    assert look(tool, made, "k") == Found(Made(id=made))
    assert look(tool, made, "other") == Absent(), "it is there and is another one"
    assert look(tool, "res-999999", "k") == Absent()


@pytest.mark.parametrize(
    "paging",
    [NextLink(), LinkHeader(), Cursor(), PageNumber()],
    ids=lambda paging: type(paging).__name__,
)
def test_every_page_is_read(fx: Fx, paging: Any) -> None:
    prefix = f"{type(paging).__name__}"
    ids = [fx.make(prefix, body={"name": f"{prefix}-{n}", "amount": 1}) for n in range(7)]
    fx.behave(page_size=2)
    tool = a_tool(**{**BY_NAME, "url": f"${{FX_URL}}/resources?name={prefix}", "paging": paging})
    for place in (0, 3, 6):
        assert look(tool, f"{prefix}-{place}", "k") == Found(Made(id=ids[place]))
    assert look(tool, f"{prefix}-7", "k") == Absent()
    assert look(tool, f"{prefix}-3", "k", amount=2) == Absent(), "every field has to match"
    several = fx.make(prefix, body={"name": f"{prefix}-0", "amount": 1})
    found = look(tool, f"{prefix}-0", "k")
    assert isinstance(found, Undecided)
    assert found.again_in is None
    assert f"{ids[0]}, {several}" in found.reason


def test_without_paging_only_one_page_is_read(fx: Fx) -> None:
    for n in range(3):
        fx.make("single", key=f"s-{n}", body={"name": "single"})
    fx.behave(page_size=2)
    tool = a_tool(**{**BY_KEY, "url": "${FX_URL}/resources?name=single"})
    assert isinstance(look(tool, "single", "s-1"), Found)
    assert look(tool, "single", "s-2") == Absent()


def test_pages_without_an_end_decide_nothing(fx: Fx) -> None:
    for n in range(5):
        fx.make("endless", key=f"e-{n}", body={"name": "endless"})
    fx.behave(page_size=1)
    tool = a_tool(
        **{**BY_KEY, "url": "${FX_URL}/resources?name=endless"}, paging=Cursor(), page_limit=3
    )
    for key in ("e-1", "e-4"):
        found = look(tool, "endless", key)
        assert isinstance(found, Undecided)
        assert "more than 3 pages" in found.reason
        assert ("res-" in found.reason) == (key == "e-1")
    fx.make("circle", key="c", body={"next": "/resources?key=c"})
    with pytest.raises(LookUpFailed, match="circle"):
        look(a_tool(**BY_KEY, paging=NextLink("items.0.request.next")), "circle", "c")


def test_a_page_on_another_host_is_not_followed(fx: Fx) -> None:
    fx.make("abroad", key="a", body={"next": "http://127.0.0.2:1/steal"})
    tool = a_tool(**BY_KEY, paging=NextLink("items.0.request.next"))
    with pytest.raises(LookUpFailed, match="another host"):
        look(tool, "abroad", "a")


def test_a_renamed_resource_is_found_by_its_key(fx: Fx) -> None:
    tool = a_tool(**BY_KEY)
    made = tool.execute(Order(name="draft"), key="r-1")
    fx.rename(made.id, "final")
    assert look(tool, "draft", "r-1") == Found(made)
    by_name = a_tool(**{**BY_KEY, "url": "${FX_URL}/resources?name={name}"})
    assert look(by_name, "draft", "r-1") == Absent()


def test_what_is_hidden_yet_is_absent_and_what_is_not_ready_is_looked_at_again(fx: Fx) -> None:
    tool = a_tool(**BY_KEY, again_in=3.0)
    fx.fault("slow", "provisioning", seconds=30)
    tool.execute(Order(name="slow"), key="p-1")
    found = look(tool, "slow", "p-1")
    assert isinstance(found, Undecided)
    assert found.again_in == 3.0
    fx.fault("late", "hidden", seconds=30)
    tool.execute(Order(name="late"), key="h-1")
    assert look(tool, "late", "h-1") == Absent()


@pytest.mark.parametrize(
    ("fault", "options", "complaint"),
    [
        ("5xx_before_apply", {"status": 500}, "answered 500"),
        ("refuse", {"status": 404}, "answered 404"),
        ("refuse", {"status": 401}, "answered 401"),
        ("429", {"retry_after": 9}, "answered 429"),
        ("garbled", {}, "of no use"),
    ],
)
def test_a_look_up_that_fails_says_nothing(
    fx: Fx, fault: Any, options: dict[str, Any], complaint: str
) -> None:
    tool = a_tool(**BY_KEY)
    tool.execute(Order(name="fails"), key=complaint)
    fx.fault("fails", fault, on="lookup", **options)
    with pytest.raises(LookUpFailed, match=complaint) as caught:
        look(tool, "fails", complaint)
    assert caught.value.retry_after == (9.0 if fault == "429" else None)
    assert isinstance(look(tool, "fails", complaint), Found)


@pytest.mark.parametrize("fault", ["hang", "drop_response"])
def test_a_look_up_without_an_answer_fails_in_time(fx: Fx, fault: Any) -> None:
    tool = a_tool(**BY_KEY)
    tool.execute(Order(name="silent"), key=f"q-{fault}")
    fx.fault("silent", fault, on="lookup", seconds=10)
    with pytest.raises(Unanswered):
        look(tool, "silent", f"q-{fault}")


def test_a_redirect_is_followed_on_the_same_host_only(fx: Fx) -> None:
    tool = a_tool(**BY_KEY)
    made = tool.execute(Order(name="moved"), key="m-1")
    fx.fault("moved", "redirect", on="lookup", status=302, location="/resources?key=m-1")
    assert look(tool, "moved", "m-1") == Found(made)
    fx.fault("moved", "redirect", on="lookup", location="http://127.0.0.2:1/resources")
    with pytest.raises(LookUpFailed, match="another host"):
        look(tool, "moved", "m-1")
    fx.fault("moved", "redirect", on="lookup", times=9, location="/resources?key=m-1")
    with pytest.raises(LookUpFailed, match="redirected 5 times"):
        look(tool, "moved", "m-1")


def test_an_answer_of_another_shape_is_a_failed_look_up_or_a_persons_question(fx: Fx) -> None:
    fx.make("shape", key="s-9", body={"name": "shape"})
    for items in ("data", "items.0.id"):
        with pytest.raises(LookUpFailed, match="of no use"):
            look(a_tool(**{**BY_KEY, "items": items}), "shape", "s-9")
    found = look(a_tool(**BY_KEY, result_at="request"), "shape", "s-9")
    assert isinstance(found, Undecided)
    assert found.again_in is None
    assert "is no result" in found.reason


def test_nothing_may_be_said_by_404_when_the_tool_says_so(fx: Fx) -> None:
    tool = a_tool(**BY_KEY, nothing={404})
    fx.make("nothing", key="n-1")
    fx.fault("*", "refuse", on="lookup", status=404)
    assert look(tool, "nothing", "n-1") == Absent()
    fx.fault("*", "refuse", on="lookup", status=410)
    found = look(tool, "nothing", "n-1")
    assert isinstance(found, Undecided)
    assert "is gone" in found.reason
