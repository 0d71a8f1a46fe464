"""Values of every size, and artifacts, taken whole and in pieces."""

import hashlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from tasks import Context, Then, group, step, workflow
from tasks.artifacts import Artifact
from tasks.canvas import Canvas
from tests.agents.outside import ask, create, earlier_notes, note

WORD = "0123456789abcdef" * 64


def text_of(size: int) -> str:
    """As long as asked for, of one byte a character."""
    return (WORD * (size // len(WORD) + 1))[:size]


class Report(BaseModel):
    title: str
    scan: Artifact


@step
def produce(ctx: Context, size: int) -> str:
    note(ctx)
    ask(f"large-{ctx.run_id}")
    create(ctx, f"large-{ctx.run_id}")
    return text_of(size)


@step
def consume(ctx: Context, text: str) -> dict[str, Any]:
    note(ctx)
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size": len(text)}


@step
def measure(ctx: Context, text: str, factor: int = 1) -> int:
    note(ctx)
    return factor * len(text)


@step
def gather(ctx: Context, texts: list[str]) -> list[int]:
    note(ctx)
    return [len(text) for text in texts]


@step
def grow(ctx: Context, size: int) -> Then[int]:
    note(ctx)
    return Then(size, measure.si(text_of(size)))


@workflow("large", version="1")
def large(size: int) -> Canvas:
    return produce.s(size) | consume.s()


@workflow("large-killed", version="1", steps=[produce, consume])
def large_killed(size: int) -> Canvas:
    return produce.s(size) | consume.s()


@workflow("large-input", version="1")
def large_input(text: str) -> Canvas:
    return measure.s(text, factor=2)


@workflow("large-group", version="1")
def large_group(size: int) -> Canvas:
    return group(produce.s(size), produce.s(size), produce.s(3)) | gather.s()


@workflow("large-then", version="1", steps=[grow, measure])
def large_then(size: int) -> Canvas:
    return grow.s(size)


@step
def store(ctx: Context, size: int, die: bool) -> Report:
    note(ctx)
    again = len(earlier_notes(ctx, "body")) > 1
    made = ctx.artifact.put(
        _pieces(size, die=die and not again), name="scan.bin", media_type="application/octet-stream"
    )
    return Report(title="a scan", scan=made)


@step
def use(ctx: Context, report: Report) -> str:
    note(ctx)
    with ctx.artifact.open(report.scan) as file:
        found = hashlib.sha256(file.read()).hexdigest()
    assert ctx.artifact.get(report.scan)[:4] == b"0123"
    return found


@workflow("keep", version="1")
def keep(size: int, die: bool = False) -> Canvas:
    return store.s(size, die) | use.s()


@step
def announce(ctx: Context, report: Report, gate: str) -> Report:
    """Takes as long as the outside world holds it."""
    note(ctx)
    create(ctx, gate)
    return report


@step
def wait(ctx: Context, gate: str) -> str:
    note(ctx)
    create(ctx, gate)
    return gate


@workflow("keep-gated", version="1", steps=[store, announce, use])
def keep_gated(size: int, gate: str) -> Canvas:
    return store.s(size, False) | announce.s(gate) | use.s()


@workflow("bound-gated", version="1")
def bound_gated(text: str, gate: str) -> Canvas:
    return wait.s(gate) | measure.si(text)


@workflow("joined-gated", version="1")
def joined_gated(size: int, gate: str) -> Canvas:
    return group(produce.s(size), wait.s(gate)) | gather.s()


def _pieces(size: int, *, die: bool) -> Iterator[bytes]:
    data = text_of(size).encode()
    yield data[: size // 2]
    if die:
        os.kill(os.getpid(), signal.SIGKILL)
    yield data[size // 2 :]
