"""Tools about whose effects people decide: one for each kind of result."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from tasks import Context, Effect, Tool, step, workflow
from tasks.canvas import Canvas


class Server(BaseModel):
    resource_id: str
    size: int = 1


class Sized(BaseModel):
    id: str
    size: int


@dataclass
class Named:
    name: str
    note: str = ""


class Text(Tool[str, str]):
    name, effect = "deciding.text", Effect.ONCE


class Number(Tool[str, int]):
    name, effect = "deciding.number", Effect.ONCE


class Nothing(Tool[str, None]):
    name, effect = "deciding.nothing", Effect.ONCE


class Anything(Tool[str, Any]):
    name, effect = "deciding.anything", Effect.ONCE


class Identified(Tool[str, Server]):
    name, effect = "deciding.identified", Effect.ONCE


class OneField(Tool[str, Named]):
    name, effect = "deciding.one-field", Effect.ONCE


class Whole(Tool[str, Sized]):
    name, effect = "deciding.whole", Effect.ONCE


class Found(BaseModel):
    at: datetime
    by: str


class Unnamed(Tool[str, Found]):
    name, effect = "deciding.unnamed", Effect.ONCE


class Many(Tool[str, list[str]]):
    name, effect = "deciding.many", Effect.ONCE


@step
def decide(ctx: Context) -> str:
    return ctx.run_id


@workflow("deciding", version="1")
def deciding() -> Canvas:
    return decide.s()
