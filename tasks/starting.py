"""Submitting a run: its workflow's function is run once, here, and its plan is stored."""

from collections.abc import Mapping
from functools import lru_cache

from celery import Celery

from models.digests import digest, digest_text
from models.journal import submitting
from models.journal.errors import Refused
from models.journal.submitting import Submission, Submitted
from models.messages import safe_repr
from models.settings import Settings, settings
from tasks import registry
from tasks.publishing import publish

MAX_PRIORITY = 1000  #: higher goes first

#: Settings that change what a run does, as its fingerprint: evidence when two runs differ.
_FINGERPRINT = {
    "crash_limit",
    "lost_limit",
    "output_limit",
    "plan_limit",
    "group_limit",
    "depth_limit",
}


def prepare(
    workflow: str, given: Mapping[str, object], *, key: str | None = None, run_id: str | None = None,
    batch_id: str | None = None, priority: int = 0,
) -> Submission:  # fmt: skip
    """Check the input and make the plan. Writes nothing; every refusal names the field."""
    _check_priority(priority)
    found = registry.get_workflow(workflow)
    values = found.bind(given)
    text = found.input_text(**values)
    return Submission(
        workflow=found.name, version=found.version, interface_digest=found.interface_digest,
        code_digest=found.code_digest, config_digest=_fingerprint(settings()),
        input=text, input_digest=digest_text(text), plan=found.plan_of(values), run_id=run_id,
        submission_key=key, batch_id=batch_id, priority=priority, on_failure=found.on_failure,
    )  # fmt: skip


def start_run(
    app: Celery, workflow: str, given: Mapping[str, object], *, key: str | None = None,
    run_id: str | None = None, batch_id: str | None = None, priority: int = 0,
) -> Submitted:  # fmt: skip
    """Record a run and send its first messages. The same key and input give the same run again."""
    if batch_id is not None:
        submitting.create_batch(batch_id, batch_id)
    submitted = submitting.submit(
        prepare(workflow, given, key=key, run_id=run_id, batch_id=batch_id, priority=priority)
    )
    publish(app, submitted.wakeups)
    return submitted


def _check_priority(priority: object) -> None:
    whole = isinstance(priority, int) and not isinstance(priority, bool)
    if not whole or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:  # type: ignore[operator]
        raise Refused(
            f"priority must be a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}, not "
            f"{safe_repr(priority)}. Nothing was submitted."
        )


@lru_cache(maxsize=4)
def _fingerprint(current: Settings) -> str:
    return digest(current.model_dump(include=_FINGERPRINT))
