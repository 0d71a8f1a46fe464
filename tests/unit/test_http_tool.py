"""HTTP tools as they are declared: holes, meanings of answers, and what is refused at import."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tasks.errors import DefinitionError
from tasks.toolkit.exchange import Answer, Call, Unreadable, meaning
from tasks.toolkit.http import HttpTool, LookUp, PageNumber, Undo
from tasks.toolkit.outgoing import Outgoing
from tasks.toolkit.templates import CannotFill, Missing, Template, UrlTemplate, Values, at, put
from tasks.tools import Effect, tool_named

URL = "https://host.example/orders/{name}"


def values(**request: Any) -> Values:
    return Values(
        "run-1:pay:order:1", request, {"id": 7}, environ={"BASE": "https://b.example/v1/"}
    )


def url(text: str, **request: Any) -> str:
    return UrlTemplate(text, owner="tool t").url(values(**request))


def test_what_a_request_fills_in_cannot_leave_its_place() -> None:
    assert url(URL, name="a/b?c#d&e%f ü") == (
        "https://host.example/orders/a%2Fb%3Fc%23d%26e%25f%20%C3%BC"
    )
    assert url("https://h.example/x?ref={key}&n={n}&y={y}", n=2.5, y=True) == (
        "https://h.example/x?ref=run-1%3Apay%3Aorder%3A1&n=2.5&y=true"
    )
    assert url("${BASE}/x/{request.key}", key="mine") == "https://b.example/v1/x/mine"
    assert url("${BASE}/{a.b.1.c}", a={"b": [0, {"c": "deep"}]}) == "https://b.example/v1/deep"
    assert url("${BASE}/{result.id}") == "https://b.example/v1/7"


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"name": ".."}, "would leave its path"),
        ({"name": "."}, "would leave its path"),
        ({"name": ""}, "empty"),
        ({"name": None}, "null"),
        ({"name": ["a"]}, "list"),
        ({"name": "\ud800"}, "surrogate"),
        ({}, "no 'name'"),
    ],
)
def test_what_cannot_stand_in_an_address_is_not_sent(
    request_: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CannotFill, match=complaint):
        url(URL, **request_)


def test_dots_that_only_come_together_leave_no_path_either() -> None:
    with pytest.raises(CannotFill, match="would leave its path"):
        url("https://h.example/a/{one}{two}/b", one=".", two=".")


def test_the_environment_fills_in_what_is_secret() -> None:
    template = Template("Bearer ${TOKEN}", owner="tool t")
    assert template.header(Values("k", {}, environ={"TOKEN": "s3cret"})) == "Bearer s3cret"
    with pytest.raises(CannotFill, match="environment variable TOKEN is not set"):
        template.header(Values("k", {}, environ={}))
    with pytest.raises(CannotFill, match="cannot stand in a header") as caught:
        template.header(Values("k", {}, environ={"TOKEN": "a\r\nX-Admin: s3cret"}))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(CannotFill, match="does not give an http"):
        UrlTemplate("${BASE}/x", owner="tool t").url(Values("k", {}, environ={"BASE": "file:///"}))


@pytest.mark.parametrize(
    "text",
    [
        "https://{host}/orders", "https://api.{tenant}.example/x", "${BASE}{name}", "{name}",
        "ftp://h.example/x", "https://h.example/{na me}", "https://h.example/{}", "/relative",
    ],
)  # fmt: skip
def test_an_address_that_requests_could_aim_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        UrlTemplate(text, owner="tool t")


def test_paths_lead_through_objects_and_lists() -> None:
    structure = {"data": {"items": [{"id": 1}, {"id": 2}]}}
    assert at(structure, "data.items.1.id") == 2
    assert at(structure, "") is structure
    for wrong in ("data.item", "data.items.2", "data.items.-1", "data.items.id"):
        with pytest.raises(Missing):
            at(structure, wrong)
    body: dict[str, Any] = {"order": {"sum": 1}}
    put(body, "order.meta.ref", "k")
    assert body == {"order": {"sum": 1, "meta": {"ref": "k"}}}
    with pytest.raises(CannotFill, match="is no object"):
        put(body, "order.sum.x", 1)


def filled(request: Any, **options: Any) -> Call:
    given: dict[str, Any] = {
        "headers": {}, "body": None, "key_header": "Idempotency-Key", "key_field": None, **options,
    }  # fmt: skip
    outgoing = Outgoing("POST", "https://h.example/x", owner="tool t", **given)
    return outgoing.fill(Values("k-1", request))


def test_the_body_is_the_request_some_of_it_or_an_object_of_its_own() -> None:
    request = {"amount": 10, "customer": {"id": "c"}, "note": None}
    assert filled(request).content == b'{"amount": 10, "customer": {"id": "c"}, "note": null}'
    assert filled([1, 2]).content == b"[1, 2]"
    assert filled(request, body=False).content is None
    assert filled(request, body=["amount"]).content == b'{"amount": 10}'
    made = filled(
        request,
        body={
            "order.sum": "{amount}",
            "order.by": "{customer}",
            "text": "for {customer.id}",
            "n": 1,
        },
    )
    assert made.content == (b'{"order": {"sum": 10, "by": {"id": "c"}}, "text": "for c", "n": 1}')
    keyed = filled(request, body=["amount"], key_field="metadata.ref", key_header=None)
    assert keyed.content == b'{"amount": 10, "metadata": {"ref": "k-1"}}'
    assert "Idempotency-Key" not in keyed.headers
    assert request == {"amount": 10, "customer": {"id": "c"}, "note": None}
    with pytest.raises(CannotFill, match="not JSON"):
        filled({"amount": float("nan")})


def test_a_secret_with_an_alias_is_neither_recorded_nor_repeated_nor_looked_up_by() -> None:
    class Charge(BaseModel):
        amount: int
        api_key: str = Field(default="", serialization_alias="apiKey")

    def declare(**options: Any) -> HttpTool[Charge, Any]:
        return HttpTool(
            "t.aliased", effect=Effect.ONCE, url="https://h.example/x", request=Charge,
            secret={"api_key"}, **options,
        )  # fmt: skip

    charge = Charge(amount=1, api_key="CANARY")
    made = declare()
    assert made.asked(charge).recorded == '{"amount":1}'
    call = made._create.fill(made._values(charge, "k-1"))
    assert call.content == b'{"amount": 1, "apiKey": "CANARY"}'
    assert call.hidden == ("CANARY",)
    with pytest.raises(DefinitionError, match="'apiKey' is secret"):
        declare(lookup=LookUp(url="https://h.example/x?by={apiKey}"))


def test_headers_of_the_tool_come_before_the_usual_ones() -> None:
    own = {"accept": Template("text/x", owner="t"), "X-Tenant": Template("{tenant}", owner="t")}
    call = filled({"tenant": "acme"}, headers=own)
    assert call.headers == {
        "accept": "text/x", "X-Tenant": "acme", "Content-Type": "application/json",
        "Idempotency-Key": "k-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((200, 201, 202, 204), "settled"),
        ((301, 307, 308, 400, 401, 403, 404, 410, 422, 425, 429), "refused"),
        ((302, 303, 304, 408, 409, 500, 501, 502, 503, 504, 520), "unknown"),
    ],
)
def test_what_a_status_means(statuses: tuple[int, ...], expected: str) -> None:
    assert {meaning(status, {}) for status in statuses} == {expected}
    assert meaning(statuses[0], {statuses[0]: "unknown"}) == "unknown"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:29:00 GMT"}, 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, None),
        ({"retry-after": "soon", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_date_to_retry_at_is_read_against_the_services_own_clock(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert answer(headers=headers).retry_after == seconds


def answer(
    body: bytes = b"", *, headers: dict[str, str] | None = None, problem: str = ""
) -> Answer:
    call = Call("POST", "https://h.example", "POST x", hidden=("s3cret",))
    return Answer(call, 200, headers or {}, body, problem)


def test_an_answer_that_broke_off_is_unreadable_and_its_excerpt_keeps_secrets() -> None:
    with pytest.raises(Unreadable, match="not JSON"):
        answer(b'{"id": ').json()
    with pytest.raises(Unreadable, match="broke off"):
        answer(b"{}", problem="it broke off").json()
    assert answer().json() is None
    assert answer(b"no card\n s3cret \x00").excerpt == "no card *** \\x00"


class Order(BaseModel):
    name: str
    card: str = ""
    amount: int = Field(0, alias="sum", serialization_alias="total")


def declare(name: str = "http.unit", **options: Any) -> HttpTool[Any, Any]:
    given: dict[str, Any] = {"effect": Effect.ONCE, "url": URL, "request": Order, **options}
    return HttpTool(name, **given)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"effect": Effect.QUERYABLE}, "needs def lookup"),
        ({"effect": Effect.IDEMPOTENT}, "key_retention"),
        (
            {"effect": Effect.IDEMPOTENT, "key_retention": timedelta(1), "key_header": None},
            "sends its key",
        ),
        ({"url": "https://h.example/{nobody}"}, "no field 'nobody'"),
        ({"url": "https://h.example/{amount}"}, "no field 'amount'"),
        ({"url": "https://h.example/{result.id}"}, "only what undoes it"),
        ({"method": "get"}, "method='get'"),
        ({"body": "amount"}, "list of field names"),
        ({"body": {"x": "{oops"}}, "brace"),
        ({"lookup": LookUp(url="https://h.example/x", items="data")}, "which item is meant"),
        ({"lookup": LookUp(url="https://h.example/x", paging=PageNumber())}, "no pages"),
        ({"lookup": LookUp(url="https://h.example/{card}"), "secret": {"card"}}, "is secret"),
        ({"undo": Undo("https://h.example/{card}"), "secret": {"card"}}, "is secret"),
    ],
)
def test_what_could_only_fail_later_is_refused_at_import(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        declare("http.refused", **options)
    with pytest.raises(LookupError):
        tool_named("http.refused")


def test_a_declared_tool_is_found_by_its_name_and_by_nothing_else() -> None:
    made = declare("http.named", url="https://h.example/{total}")
    assert tool_named("http.named") is made
    assert (made.can_look_up, made.can_compensate) == (False, False)
    again = declare("http.named", url="https://h.example/{total}")
    assert tool_named("http.named") is again, "a module that is imported again"
    with pytest.raises(DefinitionError, match="two HTTP tools"):
        declare("http.named", url="https://other.example/{total}")
