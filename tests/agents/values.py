"""Results that are awkward to write down, and a step that looks closely at what it was given."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import create, note

T = TypeVar("T")


class ToolError(Exception):
    """What a tool raises, with whatever it had in its hands."""


class Inner(BaseModel):
    n: int


class Box(BaseModel, Generic[T]):
    item: T


@dataclass
class Evidence:
    price: Decimal
    at: datetime
    blob: bytes
    id: UUID
    m: Box[Inner]
    f: float
    t: tuple[int, int]
    nothing: None = None


AWKWARD: dict[str, Any] = {
    "text": {"text": "ab\x00cd", "k\x00": 1, "lit": "\\u0000"},
    "float": {"score": float("nan"), "best": float("inf"), "ok": 0.5},
    "set": {"ids": {3, 1}},
}


@step
def publish(ctx: Context, case: str) -> Any:
    note(ctx)
    create(ctx, f"awkward-{case}")
    if case == "error":
        raise ToolError({1, 2}, object(), "bad \x00 byte")
    return AWKWARD[case]


@workflow("values-awkward", version="1")
def awkward(case: str) -> Canvas:
    return publish.s(case)


@step
def produce(ctx: Context) -> Evidence:
    note(ctx)
    return Evidence(
        price=Decimal("1.10"), at=datetime(2026, 3, 1, tzinfo=UTC), blob=b"\xff\x00", id=UUID(int=5),
        m=Box[Inner](item=Inner(n=3)), f=1.5, t=(1, 2),
    )  # fmt: skip


@step
def inspect(ctx: Context, evidence: Evidence) -> dict[str, list[str]]:
    note(ctx)
    seen = {field.name: getattr(evidence, field.name) for field in fields(evidence)}
    seen["m.item"] = evidence.m.item
    return {name: [type(value).__qualname__, repr(value)] for name, value in seen.items()}


@step
def unsupported(ctx: Context) -> Any:
    note(ctx)
    return {"share": Fraction(1, 3)}


def _plan() -> Canvas:
    return produce.s() | inspect.s()


def _refused() -> Canvas:
    return unsupported.s()


#: The same steps where nothing happens, and where a failpoint lies in wait.
for _name in ("values-live", "values-killed"):
    workflow(_name, version="1", steps=[produce, inspect])(_plan)
for _name in ("refused-live", "refused-killed"):
    workflow(_name, version="1", steps=[unsupported])(_refused)
