"""Runs with an untracked step that can be asked whether it was done, and one look-up of it by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery

from models.journal import losing, untracked
from models.journal.untracked import Ask, StepInDoubt
from recovery.reconcile_steps import reconcile_step
from tasks import Context, registry, step
from tasks.canvas import Canvas
from tasks.workflow import Workflow
from tests.support.journal import Journal, Worker, submit_run
from tests.support.toys import work

answers: list[Any] = []  #: of the look-ups to come; functions are called with the context
asked: list[tuple[Any, ...]] = []  #: what look-ups were given


def was_done(ctx: Context, place: str, *, times: int = 1) -> Any:
    asked.append((ctx.run_id, ctx.step_key, ctx.idempotency_key("deploy"), place, times))
    answer = answers.pop(0)
    return answer(ctx) if callable(answer) else answer


@step(untracked=True, lookup=was_done)
def deploy(ctx: Context, place: str, *, times: int = 1) -> dict[str, int]:
    return {place: times}


@step
def after(ctx: Context, value: Any) -> Any:
    return value


def _plan() -> Canvas:
    return deploy.s("paris") | after.s()


ASKED = Workflow(_plan, name="toy", version="1", extra_steps=(deploy, after, work))


@contextmanager
def loaded() -> Iterator[None]:
    """A process that has loaded this workflow, and nothing asked yet."""
    answers.clear()
    asked.clear()
    with registry.isolated():
        registry.register(ASKED)
        yield


def start(canvas: Any = None) -> str:
    return submit_run(
        canvas or deploy.s("paris", times=2).set(key="deploy") | after.s(), workflow=ASKED
    )


def lost(
    journal: Journal, canvas: Any = None, *, branch: str = "0", died: bool = True, **claims: Any
) -> str:
    """A run whose untracked step lost its owner."""
    journal.freeze()
    run_id = start(canvas)
    Worker(**claims).take(run_id, "deploy", branch)
    if died:
        die(run_id)
    else:
        journal.lose()
    return run_id


def die(run_id: str) -> None:
    """The parent of the step's process saw it dead."""
    task_id = f"{run_id}:deploy"
    losing.mark_died(run_id, task_id=task_id, start_id="start-1", reason="signal 9")


def asked_for(journal: Journal, run_id: str, branch: str = "0") -> Ask:
    """A question that must be there to be asked."""
    ask = untracked.ask(journal.ref(run_id, branch))
    assert ask is not None
    return ask


def look(journal: Journal, app: Celery, run_id: str, *found: Any, branch: str = "0") -> None:
    """Look the step up, once for each of these answers."""
    for answer in found:
        answers.append(answer)
        reconcile_step(app, asked_for(journal, run_id, branch).ref)


def begun(journal: Journal, run_id: str) -> StepInDoubt:
    """A look-up that must be granted."""
    found = untracked.begin(asked_for(journal, run_id).ref, owner="start-9.look")
    assert found is not None
    return found
