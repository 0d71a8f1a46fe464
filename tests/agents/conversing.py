"""Steps that let a model decide what is done at the outside service, within one step and step by step."""

from pydantic import BaseModel

from models.failpoints import FailPoint
from tasks import Context, Then, step, workflow
from tasks.canvas import Canvas
from tasks.llm import Conversation, pure
from tests.agents.ledgered import Blind, Order, Place
from tests.agents.outside import ask, note


@pure
def look_around(place: str) -> str:
    """What can be seen at a place; counted where it is asked."""
    return ask(place)


TOOLS = [look_around, Place(), Blind()]


@step(kind="llm", max_retries=0)
def talk(ctx: Context, name: str) -> Conversation:
    """The whole conversation in one step."""
    note(ctx)
    return ctx.llm.converse(name, tools=TOOLS)


@step(kind="llm", max_retries=0)
def listen(ctx: Context, name: str) -> Conversation:
    """The same, streamed."""
    note(ctx)
    return ctx.llm.converse(name, tools=TOOLS, on_chunk=lambda _: None)


@step
def begin(ctx: Context, name: str) -> Conversation:
    note(ctx)
    return Conversation.begin(name)


@step(kind="llm", max_retries=0)
def think(ctx: Context, said: Conversation) -> Conversation | Then[Conversation]:
    note(ctx)
    said = ctx.llm.think(said, tools=TOOLS)
    return Then(said, act.s() | think.s()) if said.pending else said


@step(kind="write", max_retries=0)
def act(ctx: Context, said: Conversation) -> Conversation:
    note(ctx)
    return ctx.llm.act(said, tools=TOOLS)


@step
def close(ctx: Context, said: Conversation) -> str:
    note(ctx)
    return said.answer or ""


class Choice(BaseModel):
    order: str
    servers: int


@step(kind="llm", max_retries=0)
def choose(ctx: Context, name: str) -> Choice:
    """Three asks at most, over all attempts."""
    note(ctx)
    return ctx.llm.ask(Choice, name)


@step(kind="llm", max_retries=0)
def say(ctx: Context, name: str) -> str:
    note(ctx)
    return ctx.llm.text(name, on_chunk=lambda _: None)


@step(kind="write")
def order(ctx: Context, choice: Choice) -> str:
    note(ctx)
    return ctx.call(Place(), Order(choice.order, choice.servers)).resource_id


@step(kind="llm", max_retries=0)
def choose_and_order(ctx: Context, name: str) -> str:
    """What is ordered hangs on the answer, in the same step."""
    note(ctx)
    choice = ctx.llm.ask(Choice, name)
    return ctx.call(Place(), Order(choice.order, choice.servers)).resource_id


@step
def report(ctx: Context, told: str) -> str:
    note(ctx)
    return told


@workflow("conversing", version="1")
def conversing(name: str) -> Canvas:
    return talk.s(name) | close.s()


@workflow("listening", version="1")
def listening(name: str) -> Canvas:
    return listen.s(name) | close.s()


@workflow("saying-on", version="1")
def saying(name: str) -> Canvas:
    return say.s(name) | report.s()


@workflow("stepwise", version="1", steps=[begin, think, act, close])
def stepwise(name: str) -> Canvas:
    return begin.s(name) | think.s() | close.s()


def _chosen(name: str) -> Canvas:
    return choose.s(name) | order.s() | report.s()


#: ``choosing-L2`` and so on, and ``choosing`` for faults that come from outside.
for _name in ("choosing", *(f"choosing-{point}" for point in FailPoint)):
    workflow(_name, version="1", steps=[choose, order, report])(_chosen)


def _ordered(name: str) -> Canvas:
    return choose_and_order.s(name) | report.s()


for _name in ("ordering", *(f"ordering-{point}" for point in FailPoint)):
    workflow(_name, version="1", steps=[choose_and_order, report])(_ordered)
