"""Looking up one effect that may have happened: asked of its tool, where the tool's code is loaded.

    begin -> a late answer, or the tool's look-up -> conclude -> written, under what it began with -> the step goes on

Nothing is sent here. A look-up that hangs, raises or takes its process with it was counted when it began and
is made again later; everything it can find is an event of the run.
"""

import logging
from dataclasses import replace

from celery import Celery

from models.failpoints import FailPoint, failpoint
from models.journal import lookups
from models.journal.effect_values import OpenEffect
from models.messages import describe
from models.redaction import redact
from models.settings import settings
from models.values import encode
from recovery.asking import finding_of
from recovery.conclude import (
    AskPerson,
    BelieveAbsent,
    CheckFailed,
    Conclusion,
    Finding,
    LookAgain,
    NotAskable,
    Seen,
    Settle,
    TryAgain,
    conclude,
)
from recovery.sweep import recover_run
from tasks import logs, patience, processes
from tasks.tools import Looked, Tool, tool_named, tools

_log = logging.getLogger("onward.reconcile")
NEVER_BACK = "the last of them ended its process, or took too long"


def reconcile(app: Celery, run_id: str, key: str, *, looker: str) -> None:
    """Look up an effect, if it is still to be looked up, and let its step go on when that decides it."""
    effect = lookups.begin(key, looker=looker)
    if effect is None:
        _log.debug("Nothing to look up under %s: resolved, not due, or somebody is at it.", key)
        return
    with logs.about(run_id=run_id, step_key=effect.step_key):
        conclusion = _concluded(effect)
        failpoint(FailPoint.S3, None, key)
        if not patience.recorded(lambda: _record(effect, conclusion), confirmed=lambda: None):
            _log.info("What was found of %s came too late: it has changed meanwhile.", key)
            lookups.let_go(effect)
            return
        _log.log(_level(conclusion), "Effect %s: %s", key, conclusion.said)
    if isinstance(conclusion, Settle | BelieveAbsent):
        recover_run(app, run_id)


def _concluded(effect: OpenEffect) -> Conclusion:
    # Before the tool is asked: a sender that dies afterwards may have sent in between.
    gone = sender_gone(effect)
    if effect.evidence is not None:
        return conclude(effect, Seen(effect.evidence, "late_answer"), sender_gone=gone)
    if effect.failed_checks >= settings().lookup_failure_limit:
        counted = replace(effect, failed_checks=effect.failed_checks - 1)
        return conclude(
            counted, CheckFailed(f"{NEVER_BACK} (last: {effect.error})"), sender_gone=gone
        )
    if effect.tool not in tools():
        return conclude(effect, CheckFailed(_not_loaded(effect)), sender_gone=gone)
    try:
        tool = tool_named(effect.tool)
        window = tool.promise.consistency_window
    except Exception as error:  # an author's constructor, which reads the environment
        return conclude(effect, CheckFailed(describe(error)), sender_gone=gone)
    try:
        finding = _asked(tool, effect)
    except BaseException:
        lookups.let_go(effect)  # this process has been told to end, and learned nothing
        raise
    return conclude(effect, finding, sender_gone=gone, consistency_window=window)


def sender_gone(effect: OpenEffect) -> bool:
    """Whether the process that sent it last is proven dead, with what it had started on this host."""
    if effect.sender_died:
        return True
    if effect.pid_space != processes.pid_space() or processes.is_alive(
        effect.pid, effect.pid_started
    ):
        return False
    processes.kill_left_by(effect.run_id, effect.step_key, effect.token)
    return True


def _asked(tool: Tool[object, object], effect: OpenEffect) -> Finding:
    if effect.undoes is None:
        if not tool.can_look_up:
            return NotAskable()
        limit = settings().output_limit
        return finding_of(
            lambda: tool.lookup(tool.request_type.load(effect.request), key=effect.key),
            record=lambda result: tool.result_type.open_part(
                tool.result_type.dump(result, limit=limit)
            ),
        )
    if not tool.can_look_up_undo:
        return NotAskable()
    return finding_of(
        lambda: _ask_undo(tool, effect, effect.undoes or ""),
        record=lambda result: redact(encode(result, subject=f"what undoing {effect.tool} came to")),
    )


def _ask_undo(tool: Tool[object, object], effect: OpenEffect, original: str) -> Looked:
    if effect.undone_result is None:
        raise LookupError(f"the journal has no result of {original}, which this undoes")
    request = tool.request_type.load(effect.request)
    result = tool.result_type.load(effect.undone_result)
    return tool.lookup_compensation(request, result, key=original)


def _not_loaded(effect: OpenEffect) -> str:
    return (
        f"this worker has no tool called {effect.tool!r}: its package is missing from ONWARD_AGENTS there, or "
        "the tool was renamed"
    )


def _record(effect: OpenEffect, conclusion: Conclusion) -> bool:
    match conclusion:
        case Settle(result, source, said):
            return lookups.found(effect, result=result, source=source, said=said)
        case BelieveAbsent(said):
            return lookups.believe_absent(effect, said=said)
        case LookAgain(after, counts, said):
            return lookups.look_again(effect, after=after, counts=counts, said=said)
        case TryAgain(after, said):
            return lookups.check_failed(effect, after=after, said=said)
        case AskPerson(said):
            return lookups.ask_person(effect, said=said)


def _level(conclusion: Conclusion) -> int:
    return logging.WARNING if isinstance(conclusion, TryAgain | AskPerson) else logging.INFO
