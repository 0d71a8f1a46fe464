"""The periodic jobs as Celery tasks, on a control queue of their own so that no backlog starves them."""

from celery import Task, shared_task

from models.journal.lookups import SPARE
from models.journal.values import BranchRef
from models.settings import settings
from recovery import (
    alerts,
    compensate,
    reconcile,
    reconcile_steps,
    sweep,
    verify,
    wake,
    watch,
)
from recovery.sending import COMPENSATE, RECONCILE, RECONCILE_STEP
from tasks.celery import app
from tasks.quiet import without_secrets
from tasks.worker import RECOVER_RUN


@shared_task(name="recovery.sweep", ignore_result=True)
def sweep_task() -> None:
    """Find what does not move and get it going."""
    sweep.sweep_once(app)


@shared_task(name="recovery.wake", ignore_result=True)
def wake_task() -> None:
    """Publish what is due."""
    wake.wake_once(app)


@shared_task(name="recovery.watch", ignore_result=True)
def watch_task() -> None:
    """Name the reason of every run that does not move, tell of new ones; verify those that recovered."""
    watch.watch_once()
    verify.verify_recovered()
    alerts.tell_blocked()


@shared_task(name=RECOVER_RUN, ignore_result=True)
def recover_run_task(run_id: str) -> None:
    """Recover one run now, after somebody saw its process die."""
    sweep.recover_run(app, run_id)


#: Of one look-up: what ignores the first is killed at the second, within the time of its lease.
LOOK = {
    "soft_time_limit": settings().lookup_time_limit,
    "time_limit": settings().lookup_time_limit + SPARE / 2,
}


@shared_task(name=RECONCILE, bind=True, ignore_result=True, **LOOK)
def reconcile_task(task: Task, run_id: str, key: str) -> None:
    """Look up an effect in doubt, where its tool is loaded."""
    with without_secrets():
        reconcile.reconcile(app, run_id, key, looker=task.request.id)


@shared_task(name=RECONCILE_STEP, ignore_result=True, **LOOK)
def reconcile_step_task(run_id: str, branch: str, revision: int) -> None:
    """Look up an untracked step, where its code is loaded."""
    with without_secrets():
        reconcile_steps.reconcile_step(app, BranchRef(run_id, branch, revision))


@shared_task(name=COMPENSATE, ignore_result=True)
def compensate_task(run_id: str) -> None:
    """Go on with undoing what a run did, where its tools are loaded."""
    with without_secrets():
        compensate.compensate(app, run_id)
