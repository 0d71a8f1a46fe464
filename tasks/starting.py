"""Submitting a run: its workflow's function is run once, here, and its plan is stored."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from celery import Celery

from models.credentials import is_suspect, refuse_credentials, values_in
from models.decoding import decode
from models.digests import digest, digest_text
from models.journal import submitting
from models.journal.errors import Refused
from models.journal.submitting import Submission, Submitted
from models.messages import safe_repr
from models.plan import Plan
from models.redaction import redact
from models.secret import adopt
from models.settings import Settings, settings
from tasks import registry
from tasks.budgets import Budget
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
    batch_id: str | None = None, priority: int = 0, budget: object = None, within: str | None = None,
) -> Submission:  # fmt: skip
    """Check the input and make the plan. Writes nothing; every refusal names the field.

    ``budget`` is a ``Budget``, a mapping as messages carry it, or None: the workflow's own. ``within`` names a run
    whose wallet pays for this one: its child's, or its fork's.
    """
    _check_priority(priority)
    refuse_credentials(
        {"key": key, "run_id": run_id, "batch_id": batch_id}, subject="the submission"
    )
    found = registry.get_workflow(workflow)
    asked = Budget.of(budget)
    limits = asked or (found.budget if within is None else None)
    subject, allowed = f"input of {found.name}", found.allow_credentials
    given = adopt(given)
    refuse_credentials(given, allowed, subject=subject)  # first: what does not fit is shown
    values = found.bind(given)
    text = redact(found.input_text(**values))
    if is_suspect(text):
        refuse_credentials(decode(text), allowed, subject=subject)
    plan = found.plan_of(values)
    _check_arguments(plan, text, allowed)
    return Submission(
        workflow=found.name, version=found.version, interface_digest=found.interface_digest,
        code_digest=found.code_digest, config_digest=_fingerprint(settings()),
        input=text, input_digest=digest_text(text), plan=plan, run_id=run_id,
        submission_key=key, batch_id=batch_id, priority=priority, on_failure=found.on_failure,
        budget=limits.limits if limits else None, same_budget=asked is not None, within=within,
    )  # fmt: skip


def start_run(
    app: Celery, workflow: str, given: Mapping[str, object], *, key: str | None = None,
    run_id: str | None = None, batch_id: str | None = None, priority: int = 0, budget: object = None,
) -> Submitted:  # fmt: skip
    """Record a run and send its first messages. The same key and input give the same run again."""
    prepared = prepare(
        workflow, given, key=key, run_id=run_id, batch_id=batch_id, priority=priority, budget=budget
    )
    if batch_id is not None:
        submitting.create_batch(batch_id, batch_id)
    submitted = submitting.submit(prepared)
    publish(app, submitted.wakeups)
    return submitted


def _check_arguments(plan: Plan, input_text: str, allowed: Collection[str]) -> None:
    """What the workflow's function wrote into its plan: it may have read its key from somewhere."""
    if not is_suspect("\0".join(node.arguments for node in plan.nodes)):
        return
    checked = frozenset(values_in(decode(input_text)))
    for node in plan.nodes:
        if is_suspect(node.arguments):
            bound: Any = decode(node.arguments)
            subject = f"arguments of step {node.step_key!r}"
            for given in (bound["args"], bound["kwargs"]):
                refuse_credentials(given, allowed, subject=subject, checked=checked)


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
