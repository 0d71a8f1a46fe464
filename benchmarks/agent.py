"""Onward's contestant: a workflow of as many steps that do nothing as its input says."""

from benchmarks.work import RESULT
from tasks import Context, step, workflow
from tasks.canvas import Chain, chain


@step
def first(_ctx: Context) -> dict[str, object]:
    """Begin with nothing."""
    return RESULT


@step
def link(_ctx: Context, _previous: dict[str, object]) -> dict[str, object]:
    """Take the result of the step before, as the plain chain's task does."""
    return RESULT


@workflow("bench", version="1")
def bench(steps: int) -> Chain:
    """A chain of ``steps`` steps."""
    return chain(first.s(), *(link.s() for _ in range(steps - 1)))
