"""Orders through HTTP tools that are described and not programmed."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from tasks import Context, Effect, step, workflow
from tasks.canvas import Canvas
from tasks.toolkit.http import Cursor, HttpTool, LookUp, Undo
from tests.agents.outside import note


class Order(BaseModel):
    name: str
    servers: int = 1


class Placed(BaseModel):
    id: str


#: A service that ignores keys, and whose orders are found by the key in a list of pages.
place = HttpTool(
    "http.place", effect=Effect.QUERYABLE, url="${ONWARD_TEST_FX}/plain/{name}",
    request=Order, result=Placed, timeout=timedelta(seconds=1),
    lookup=LookUp(
        url="${ONWARD_TEST_FX}/resources?name={name}", items="items", match={"key": "{key}"},
        paging=Cursor(), status="status", again_in=0.5,
    ),
    undo=Undo("${ONWARD_TEST_FX}/resources/{result.id}"),
    max_request_lifetime=timedelta(seconds=3), consistency_window=timedelta(seconds=1),
)  # fmt: skip

read_back = HttpTool(
    "http.read", effect=Effect.PURE, method="GET", url="${ONWARD_TEST_FX}/resources/{id}",
    request=Placed,
)  # fmt: skip


@step(max_retries=4, retry_backoff=0.2)
def order(ctx: Context, name: str) -> Placed:
    note(ctx)
    return ctx.call(place, Order(name=name))


@step(max_retries=4, retry_backoff=0.2)
def order_and_read(ctx: Context, name: str) -> dict[str, Any]:
    note(ctx)
    placed = ctx.call(place, Order(name=name))
    details: dict[str, Any] = ctx.call(read_back, placed)
    return {"id": placed.id, "status": details["status"]}


@step
def then_fail(ctx: Context, _placed: Placed) -> str:
    note(ctx)
    raise RuntimeError("the next step cannot go on")


@workflow("http-order", version="1", steps=[order])
def _order(name: str) -> Canvas:
    return order.s(name)


@workflow("http-order-and-read", version="1", steps=[order_and_read])
def _order_and_read(name: str) -> Canvas:
    return order_and_read.s(name)


@workflow("http-undone", version="1", steps=[order, then_fail], on_failure="compensate")
def _undone(name: str) -> Canvas:
    return order.s(name) | then_fail.s()
