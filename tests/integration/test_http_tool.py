"""HTTP tools against a real service: what each answer, and each missing answer, is taken for."""

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from tasks.toolkit import http
from tasks.toolkit.http import HttpTool, RateLimited
from tasks.toolkit.lookup import LookUpFailed
from tasks.tools import Absent, Effect, Found, NotSent, Refused, Unanswered, Undecided
from tests.support.fx import Fx
from tests.support.waiting import wait_until

_numbers = count(1)


class Order(BaseModel):
    name: str
    amount: int = 1
    card: str = ""


class Made(BaseModel):
    id: str
    status: str = "ready"


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


def a_tool(**options: Any) -> HttpTool[Any, Any]:
    given: dict[str, Any] = {
        "effect": Effect.ONCE, "url": "${FX_URL}/plain/{name}", "request": Order, "result": Made,
        "timeout": timedelta(seconds=5), **options,
    }  # fmt: skip
    return HttpTool(f"http.test-{next(_numbers)}", **given)


def test_a_request_arrives_as_it_was_meant_and_is_settled_by_its_answer(fx: Fx) -> None:
    made = a_tool().execute(Order(name="a/b ü", amount=7), key="run-1:pay:x%2Fy:1")
    [resource] = fx.resources("a/b ü")
    assert made == Made(id=resource["id"], status="ready")
    assert resource["request"] == {"name": "a/b ü", "amount": 7, "card": ""}
    assert fx.keys("a/b ü") == ["run-1:pay:x%2Fy:1"]
    assert (fx.calls("a/b ü"), fx.effects("a/b ü")) == (1, 1)


def test_a_key_in_the_body_and_a_result_further_in(fx: Fx) -> None:
    tool = a_tool(key_header=None, key_field="meta.ref", result=str, result_at="request.meta.ref")
    assert tool.execute(Order(name="in-body"), key="k-1") == "k-1"
    assert fx.keys("in-body") == []


def test_secrets_come_from_the_environment_and_appear_in_no_message(
    fx: Fx, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    fx.behave(authorization="Bearer s3cret-token")
    tool = a_tool(
        headers={"Authorization": "Bearer ${FX_TOKEN}"}, url="${FX_URL}/plain/{name}?t=${FX_TOKEN}"
    )
    with pytest.raises(NotSent, match="FX_TOKEN is not set"):
        tool.execute(Order(name="secret"), key="k")
    assert fx.calls("secret") == 0
    monkeypatch.setenv("FX_TOKEN", "wr0ng-token")
    with pytest.raises(Refused, match="401") as caught:
        tool.execute(Order(name="secret"), key="k")
    assert "wr0ng" not in str(caught.value)
    assert fx.url not in str(caught.value)
    monkeypatch.setenv("FX_TOKEN", "s3cret-token")
    assert tool.execute(Order(name="secret"), key="k").status == "ready"
    monkeypatch.setenv("FX_URL", "http://s3cret-token:x/")
    with pytest.raises(NotSent) as caught:
        tool.execute(Order(name="secret"), key="k")
    assert "s3cret" not in str(caught.value)
    assert "POST ${FX_URL}/plain/{name}?t=${FX_TOKEN} was answered 200." in caplog.messages
    assert not [one for one in caplog.messages if "s3cret" in one or "wr0ng" in one]


@pytest.mark.parametrize(
    ("fault", "options", "raises", "effects"),
    [
        ("drop_response", {}, Unanswered, 1),
        ("drop_request", {}, Unanswered, 0),
        ("5xx_after_apply", {"status": 500}, Unanswered, 1),
        ("5xx_before_apply", {"status": 503}, Unanswered, 0),
        ("hang", {"seconds": 3}, Unanswered, 0),
        ("garbled", {}, Unanswered, 1),
        ("redirect", {"status": 303, "location": "/plain/elsewhere"}, Unanswered, 0),
        ("redirect", {"status": 307, "location": "/plain/elsewhere"}, Refused, 0),
        ("refuse", {"status": 408}, Unanswered, 0),
        ("refuse", {"status": 409}, Unanswered, 0),
        ("refuse", {"status": 422}, Refused, 0),
    ],
)
def test_what_is_certain_and_what_is_not(
    fx: Fx, fault: Any, options: dict[str, Any], raises: type[Exception], effects: int
) -> None:
    name = f"{fault}-{options.get('status', '')}"
    fx.fault(name, fault, **options)
    with pytest.raises(raises) as caught:
        a_tool(timeout=timedelta(seconds=1)).execute(Order(name=name), key="k")
    assert type(caught.value) is raises
    assert (fx.calls(name), fx.effects(name), fx.calls("elsewhere")) == (1, effects, 0)


def test_too_many_requests_is_definite_and_says_when(fx: Fx) -> None:
    fx.fault("busy", "429", retry_after=7)
    with pytest.raises(RateLimited, match="again in 7 s") as caught:
        a_tool().execute(Order(name="busy"), key="k")
    assert (caught.value.retry_after, fx.effects("busy")) == (7.0, 0)


def test_the_tool_may_know_better_what_an_answer_means(fx: Fx) -> None:
    tool = a_tool(answers={409: "refused", 404: "settled", 422: "unknown"}, result=Any)
    for status, raises in ((409, Refused), (422, Unanswered)):
        fx.fault("better", "refuse", status=status)
        with pytest.raises(raises):
            tool.execute(Order(name="better"), key="k")
    fx.fault("better", "refuse", status=404)
    assert tool.execute(Order(name="better"), key="k") == {"error": "ordered by the test"}


def test_a_result_of_another_shape_happened_all_the_same(fx: Fx) -> None:
    class Strange(BaseModel):
        id: int

    with pytest.raises(Unanswered, match=r"so it happened.*id: .*integer"):
        a_tool(result=Strange).execute(Order(name="strange"), key="k")
    with pytest.raises(Unanswered, match=r"so it happened.*no result at 'data.0'"):
        a_tool(result_at="data.0").execute(Order(name="strange"), key="k")
    assert fx.effects("strange") == 2


def test_what_never_left_was_not_sent(fx: Fx, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for address in (f"http://127.0.0.1:{port}", "http://nowhere.invalid", "http://h:x/"):
        monkeypatch.setenv("FX_URL", address)
        with pytest.raises(NotSent):
            a_tool(timeout=timedelta(seconds=2)).execute(Order(name="unsent"), key="k")
    monkeypatch.setenv("FX_URL", fx.url)
    for request in (Order(name=".."), Order(name="")):
        with pytest.raises(NotSent):
            a_tool().execute(request, key="k")
    with pytest.raises(NotSent, match="not JSON"):
        a_tool(request=Any).execute({"name": "unsent", "amount": float("inf")}, key="k")
    assert fx.calls("") == 0
    assert fx.all_calls("unsent") == {}


def test_a_slow_answer_is_given_up_in_time_and_lands_all_the_same(fx: Fx) -> None:
    fx.fault("late", "apply_delay", seconds=1.5)
    with pytest.raises(Unanswered, match="ReadTimeout"):
        a_tool(timeout=timedelta(seconds=0.5)).execute(Order(name="late"), key="k")
    assert fx.effects("late") == 0
    wait_until(lambda: fx.effects("late") == 1, what="the late request lands")


def test_an_answer_that_trickles_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the time-out of a read; all of them together do not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def trickle() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not done.wait(0.1):
                    connection.sendall(b" ")

        thread = threading.Thread(target=_until_hung_up, args=(trickle,))
        thread.start()
        monkeypatch.setenv("FX_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        try:
            with pytest.raises(Unanswered, match="longer than the tool's timeout"):
                a_tool(timeout=timedelta(seconds=0.5)).execute(Order(name="slow"), key="k")
        finally:
            done.set()
            thread.join(timeout=10)


def _until_hung_up(work: Any) -> None:
    try:
        work()
    except OSError:
        return


def test_every_request_goes_through_one_function(fx: Fx, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fault kit replaces to see, and to spoil, everything these tools send."""
    import httpx2  # noqa: PLC0415 - as lazily as the tool

    seen: list[str] = []

    def watched(*, timeout: float) -> httpx2.Client:
        def answer(request: httpx2.Request) -> httpx2.Response:
            seen.append(f"{request.method} {request.url.path}")
            return httpx2.Response(201, headers={"Location": "/things/1"})

        return httpx2.Client(transport=httpx2.MockTransport(answer), timeout=timeout)

    monkeypatch.setattr(http, "open_client", watched)
    tool = a_tool(result=Any, lookup=http.LookUp(url="${FX_URL}/resources/{key}"))
    assert tool.execute(Order(name="x"), key="k") == {"location": "/things/1"}
    with pytest.raises(LookUpFailed):
        tool.lookup(Order(name="x"), key="k")
    assert seen == ["POST /plain/x", "GET /resources/k"]


# Undoing


def undoable(**options: Any) -> HttpTool[Any, Any]:
    return a_tool(
        lookup=http.LookUp(
            url="${FX_URL}/resources?key={key}", items="items", match={"key": "{key}"},
            status="status",
        ),
        **{"undo": http.Undo("${FX_URL}/resources/{result.id}"), **options},
    )  # fmt: skip


def test_undoing_is_done_once_and_what_is_gone_is_undone(fx: Fx) -> None:
    tool, order = undoable(), Order(name="undo")
    made = tool.execute(order, key="u-1")
    assert tool.lookup_compensation(order, made, key="u-1") == Absent()
    assert tool.compensate(order, made, key="u-1::undo") == {
        "status": 200, "already_undone": False,
    }  # fmt: skip
    assert tool.compensate(order, made, key="u-1::undo")["already_undone"]
    assert tool.lookup_compensation(order, made, key="u-1") == Found(None)
    assert (fx.made("undo"), fx.effects("undo"), fx.deletes("undo")) == (1, 0, 2)
    assert [one["key"] for one in fx.requests("undo") if one["kind"] == "delete"] == [
        "u-1::undo"
    ] * 2


def test_an_undo_that_leaves_it_visible(fx: Fx) -> None:
    cancel = http.Undo(
        "${FX_URL}/resources/{result.id}/cancel", method="POST", body={"why": "by {name}"}, gone={409},
        check=http.LookUp(url="${FX_URL}/resources/{result.id}", status="status"),
    )  # fmt: skip
    tool, order = undoable(undo=cancel), Order(name="cancel")
    made = tool.execute(order, key="u-2")
    assert tool.lookup_compensation(order, made, key="u-2") == Absent()
    assert not tool.compensate(order, made, key="u-2::undo")["already_undone"]
    assert tool.compensate(order, made, key="u-2::undo")["already_undone"]
    assert tool.lookup_compensation(order, made, key="u-2") == Found(None)
    assert isinstance(tool.lookup(order, key="u-2"), Found), "it did happen"


def test_an_undo_may_be_unanswered_or_refused(fx: Fx) -> None:
    tool, order = undoable(), Order(name="hard")
    made = tool.execute(order, key="u-3")
    fx.fault("hard", "5xx_after_apply", on="delete")
    with pytest.raises(Unanswered):
        tool.compensate(order, made, key="u-3::undo")
    assert tool.lookup_compensation(order, made, key="u-3") == Found(None)
    again = tool.execute(order, key="u-4")
    fx.fault("hard", "refuse", on="delete", status=403)
    with pytest.raises(Refused):
        tool.compensate(order, again, key="u-4::undo")
    assert tool.lookup_compensation(order, again, key="u-4") == Absent()


def test_whether_it_was_undone_is_a_persons_question_when_nobody_can_be_asked(fx: Fx) -> None:
    tool = a_tool(undo=http.Undo("${FX_URL}/resources/{result.id}"))
    order = Order(name="unasked")
    made = tool.execute(order, key="u-5")
    assert isinstance(tool.lookup_compensation(order, made, key="u-5"), Undecided)
    assert (tool.can_look_up, tool.can_compensate) == (False, True)
