"""The plain contestant: a Celery chain with late acknowledgement. Nothing is recorded."""

from celery import chain

from benchmarks.apps import mark_finished, plain_app
from benchmarks.work import RESULT

app = plain_app("plain")


@app.task(name="plain.link")  # type: ignore[untyped-decorator]
def link(_previous: dict[str, object] | None, run: int, left: int) -> dict[str, object]:
    """One step. The last one of a chain says so."""
    if left == 0:
        mark_finished(run)
    return RESULT


def submit(run: int, steps: int) -> None:
    """Send one chain."""
    links = [
        link.s(None, run, steps - 1),
        *(link.s(run, left) for left in reversed(range(steps - 1))),
    ]
    chain(*links).apply_async()
