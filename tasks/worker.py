"""Who this worker is, and what its main process notices: starts, goodbyes and the deaths of its children.

The pool's main process sees a child die within 50 ms (``task_failure`` fires there, for a hard time limit
even before the kill, and sometimes twice). That is the fast path; the lease is the certain one.
"""

import gc
import logging
import os
import socket
import time
from functools import partial
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals

from models import database
from models.errors import OnwardError
from models.ids import new_start_id
from models.journal import lookups, losing, workers
from models.settings import settings
from tasks import leaving, pools, processes
from tasks.publishing import queue

_log = logging.getLogger("onward.worker")

#: The name of the message that asks recovery to look at one run now.
RECOVER_RUN = "onward.recover_run"
CONTROL_QUEUE = "onward.control"

_START_ID, _NAME, _MAIN_PID = "ONWARD_START_ID", "ONWARD_WORKER", "ONWARD_MAIN_PID"
_last_seen = 0.0


def start_id() -> str:
    """The identity of this start of the worker; its pool children inherit it, forked or spawned."""
    if _START_ID not in os.environ:
        os.environ[_START_ID] = new_start_id()
    return os.environ[_START_ID]


def worker_name() -> str:
    """The worker's node name, as Flower shows it."""
    return os.environ.get(_NAME, socket.gethostname())


@signals.worker_init.connect(weak=False)
def _begin(sender: Any, **_: Any) -> None:
    os.environ[_START_ID] = new_start_id()
    os.environ[_NAME] = str(sender.hostname)
    os.environ[_MAIN_PID] = str(os.getpid())
    pools.prepare(sender, control_queue=queue(CONTROL_QUEUE).name)
    sender.wait_for_soft_shutdown = partial(
        leaving.wait_for_steps, start_id(), ends_them=not pools.is_threaded()
    )


@signals.worker_process_init.connect(weak=False)
def _begin_child(**_: Any) -> None:
    os.setpgrp()  # what a step leaves running dies with its group when a hard limit kills the child
    _spare_the_collector()


@signals.worker_ready.connect(weak=False)
def _announce(sender: Any, **_: Any) -> None:
    _spare_the_collector()
    try:
        _register(sender)
        _release_earlier_starts(sender)
    except OnwardError as error:
        _log.warning("This worker could not announce itself: %s Leases will decide.", error)
    finally:
        database.close()


@signals.worker_shutdown.connect(weak=False)
def _say_goodbye(**_: Any) -> None:
    try:
        workers.stopped(start_id())
    except OnwardError as error:
        _log.warning("The goodbye was not recorded: %s", error)
    finally:
        database.close()


@signals.heartbeat_sent.connect(weak=False)
def _stay_seen(**_: Any) -> None:
    global _last_seen  # noqa: PLW0603 - the main process's own clock of its last sign of life
    if time.monotonic() - _last_seen < settings().heartbeat:
        return
    _last_seen = time.monotonic()
    try:
        workers.seen(start_id())
    except OnwardError as error:
        _log.warning("The sign of life was not recorded: %s", error)
    finally:
        database.close()


@signals.task_failure.connect(weak=False)
def _child_died(sender: Any, task_id: str, exception: BaseException, **info: Any) -> None:
    """Mark a dead child's step unknown now instead of when its lease ends. Safe to fire twice."""
    if os.environ.get(_MAIN_PID) != str(os.getpid()):
        return  # a child reporting an ordinary exception
    run_id = (info.get("kwargs") or {}).get("run_id")
    if run_id is None or not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    try:
        _release_carried(sender.app, run_id, task_id, cause=exception)
    except OnwardError as error:
        _log.warning(
            "The death of step of run %s was not recorded: %s Its lease decides.", run_id, error
        )
    finally:
        database.close()


def _release_carried(app: Any, run_id: str, task_id: str, *, cause: BaseException) -> None:
    holders = losing.carriers(run_id, task_id=task_id, start_id=start_id())
    for pid, started in holders:
        # A hard limit is told before the pool's own kill, and only once: the kill is made here.
        if isinstance(cause, TimeLimitExceeded):
            processes.kill(pid, started)
        if processes.is_alive(pid, started):
            return  # its lease decides
        processes.kill_group(pid)
    reason = str(cause) or type(cause).__name__
    if not holders:  # it carried no step: perhaps a look-up, whose time need not be waited for
        lookups.looker_died(task_id, said=f"the look-up's process is gone: {reason}")
    if losing.mark_died(run_id, task_id=task_id, start_id=start_id(), reason=reason):
        ask_for_recovery(app, run_id)


def ask_for_recovery(app: Any, run_id: str) -> None:
    """Let recovery look at a run before the next sweep; a lost message costs one sweep period."""
    try:
        app.send_task(
            RECOVER_RUN, kwargs={"run_id": run_id}, queue=queue(CONTROL_QUEUE), expires=60
        )
    except Exception as error:
        _log.warning("Recovery was not asked at once (%s); the next sweep looks.", error)


def _spare_the_collector() -> None:
    """Never look again at the 300,000 objects that were imported, which a fork would copy page by page.

    Nor every 700 new ones, since a step makes as many: a tenth of the interpreter's time, measured.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _register(sender: Any) -> None:
    queues = [found.name for found in sender.task_consumer.queues] if sender.task_consumer else []
    workers.register(
        workers.WorkerStart(
            start_id=start_id(), name=worker_name(), host=socket.gethostname(), pid=os.getpid(),
            pid_started=processes.own_start(os.getpid()), pid_space=processes.pid_space(), queues=queues,
            concurrency=int(getattr(sender.pool, "num_processes", 1) or 1),
        )
    )  # fmt: skip


def _release_earlier_starts(sender: Any) -> None:
    """Steps of this name's earlier starts: released at once where their processes are proven gone."""
    found = workers.earlier_starts(
        worker_name(), start_id=start_id(), pid_space=processes.pid_space()
    )
    for earlier, pid, started in found:
        if processes.is_alive(pid, started):
            continue
        held = losing.held_by(earlier)
        alive = [one.pid for one in held if processes.is_alive(one.pid, one.pid_started)]
        for one in held:
            if one.pid not in alive:
                processes.kill_left_by(one.run_id, one.step_key, one.token)
        runs = losing.mark_orphaned(
            earlier, alive=alive, reason="its worker is gone; a new one took its name"
        )
        if not alive:
            workers.stopped(earlier)
        for run_id in runs:
            ask_for_recovery(sender.app, run_id)
