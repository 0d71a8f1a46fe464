"""``onward runs calls``: what a run asked of models and read, and what became of each answer."""

from typing import Annotated, Any

import typer

from models.artifacts import payloads
from models.journal import calls
from models.journal.call_values import CallView
from ops.cli.asking import RunArgument, find_run
from ops.cli.output import Json, emit, plain, say, table
from tasks.budgets import dollars


def show_calls(
    run: RunArgument,
    *,
    step: Annotated[str | None, typer.Option(help="Only of this step, by its key.")] = None,
    text: Annotated[
        bool, typer.Option("--text", help="With what was asked and answered, as recorded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The recorded calls of a run: what a step that runs again is answered with, in place of a request."""
    run_id = find_run(run)
    found = [call for call in calls.of_run(run_id) if step in (None, call.step_key)]
    texts = [_texts(run_id, call) if text else None for call in found]
    answer = [_as_dict(call, both) for call, both in zip(found, texts, strict=True)]
    emit(answer, as_json=as_json, show=lambda: _show(found, texts))


def verdict_of(call: CallView) -> str:
    """``accepted``, ``rejected: schema``, ``suggested``; ``set aside`` when another branch replaced it."""
    reason = f": {call.reason}" if call.reason else ""
    told = f"{call.verdict or 'suggested'}{reason}"
    return told if call.current else f"{told} (set aside)"


def _texts(run_id: str, call: CallView) -> tuple[str, str]:
    asked, answered = calls.texts(run_id, call.step_key, call.place)
    return payloads.load(asked), payloads.load(answered)


def _as_dict(call: CallView, texts: tuple[str, str] | None) -> dict[str, Any]:
    told: dict[str, Any] = plain(call)
    if texts is not None:
        told["request"], told["answer"] = texts
    return told


def _show(found: list[CallView], texts: list[tuple[str, str] | None]) -> None:
    columns = (
        "step",
        "scope",
        "position",
        "model",
        "state",
        "verdict",
        "tokens",
        "cost",
        "attempt",
    )
    table(columns, (
        (call.step_key, call.place.scope, call.place.position, call.model or call.url, call.state,
         verdict_of(call), _tokens(call), "" if call.cost is None else dollars(call.cost), call.attempt)
        for call in found
    ))  # fmt: skip
    for call, both in zip(found, texts, strict=True):
        if both is not None:
            say(
                f"\n{call.step_key} {call.place.scope}#{call.place.position}: {call.method} {call.url}"
            )
            say(f"asked:    {both[0]}")
            say(f"answered: {both[1]}")
    if not found:
        say("Nothing is on record: no step of this run asked a model or read through its context.")


def _tokens(call: CallView) -> str:
    if call.tokens_in is None and call.tokens_out is None:
        return ""
    return f"{call.tokens_in or 0:,} + {call.tokens_out or 0:,}"
