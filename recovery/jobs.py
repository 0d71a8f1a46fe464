"""The periodic jobs as Celery tasks, on a control queue of their own so that no backlog starves them."""

from celery import shared_task

from recovery import sweep, verify, wake, watch
from tasks.celery import app
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
    """Name the reason of every run that does not move; verify those that recovered."""
    watch.watch_once()
    verify.verify_recovered()


@shared_task(name=RECOVER_RUN, ignore_result=True)
def recover_run_task(run_id: str) -> None:
    """Recover one run now, after somebody saw its process die."""
    sweep.recover_run(app, run_id)
