"""Runs of two effects each, all of one class, for the kills of ``tests/reliability``."""

from datetime import timedelta

from sqlalchemy import text

from tasks import Context, Effect, Tool, step, workflow
from tasks.canvas import Canvas
from tests.agents import ledgered
from tests.agents.ledgered import Order, Placed
from tests.agents.outside import ask

#: Longer than a request is held, however crowded the machine is; and what nothing was sent of waits for as long.
TIMEOUT, LIFETIME = timedelta(seconds=10), timedelta(seconds=4)


class Keyed(ledgered.Keyed):
    """Honours its key; cannot be asked."""

    name = "reliability.idempotent"


class Asked(ledgered.Place):
    """Acts as often as it is asked to; can be asked by the key."""

    name, timeout, max_request_lifetime = "reliability.queryable", TIMEOUT, LIFETIME


class Blind(ledgered.Blind):
    """Acts as often as it is asked to; cannot be asked."""

    name = "reliability.once"


class Planted(ledgered.Keyed):
    """Says that its service honours the key, and it does not: what the suite has to find."""

    name, kind = "reliability.planted", "plain"


class Words(Tool[Order, Placed]):
    """Changes nothing, and answers with other words each time."""

    name, effect = "reliability.pure", Effect.PURE

    def execute(self, request: Order, *, key: str) -> Placed:
        return Placed(ask(request.name))


TOOLS: dict[str, type[Tool[Order, Placed]]] = {
    "idempotent": Keyed, "queryable": Asked, "once": Blind, "pure": Words, "planted": Planted,
}  # fmt: skip


@step
def make(ctx: Context, names: list[str], *, tool: str) -> list[str]:
    return [ctx.call(TOOLS[tool](), Order(name)).resource_id for name in names]


@step
def book(ctx: Context, name: str) -> str:
    """Writes a row, and shows outside that it has: what is asked here is asked with the row in the session."""
    ctx.session.execute(
        text("INSERT INTO booking (name, run_id, attempt) VALUES (:name, :run_id, :attempt)"),
        {"name": name, "run_id": ctx.run_id, "attempt": ctx.attempt},
    )
    ask(name)
    return name


@step
def report(ctx: Context) -> str:
    return ctx.run_id


@workflow("reliability", version="1", steps=[make, book, report])
def reliability(names: list[str], of: str) -> Canvas:
    if of == "transactional":
        first, second = names
        return book.s(first) | book.si(second) | report.si()
    return make.s(names, tool=of) | report.si()
