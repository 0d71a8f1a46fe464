"""``onward effects``: what runs asked of the outside world, and what a person says became of it."""

import logging
from collections.abc import Sequence
from typing import Annotated

import typer

from models.journal import compensations, history, resolving, stories
from models.journal.resolving import Resolved
from models.journal.stories import EffectView, Happening
from models.states import BlockReason, EffectState
from ops import client, schema
from ops.cli.asking import By, actor, find_run
from ops.cli.output import Json, emit, facts, note, say, table
from ops.cli.problems import UsageProblem
from ops.resolving import result_of
from recovery import watch
from recovery.reasons import advice_on
from recovery.sweep import recover_run
from tasks.errors import AgentsError

app = typer.Typer(no_args_is_help=True, help="What runs asked of the outside world.")

_log = logging.getLogger("onward.effects")
_TOLD = 10  #: stories that one look at a run tells

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="An effect's idempotency key.")]


@app.command("list")
def list_effects(
    run: Annotated[str | None, typer.Option(help="Only of this run, by its id or key.")] = None,
    state: Annotated[EffectState | None, typer.Option(help="Only in this state.")] = None,
    needs_person: Annotated[
        bool, typer.Option("--needs-person", help="Only those that wait for somebody.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 50,
    as_json: Json = False,
) -> None:
    """The newest effects."""
    schema.require()
    run_id = None if run is None else find_run(run)
    found = stories.list_effects(run_id=run_id, state=state, needs_person=needs_person, limit=limit)
    emit(found, as_json=as_json, show=lambda: _list(found, limit))


@app.command("show")
def show(key: KeyArgument, as_json: Json = False) -> None:
    """One effect: what became of it, in order, and what is to be done about it."""
    schema.require()
    effect = stories.get_effect(key)
    story = stories.story(effect.run_id, key)
    conflict = history.get_run(effect.run_id).reason == BlockReason.IDEMPOTENCY_CONFLICT
    advice = advice_on(effect, conflict=conflict)
    answer = {"effect": effect, "advice": advice, "story": story}
    emit(answer, as_json=as_json, show=lambda: _show(effect, advice, story=story))


@app.command("resolve")
def resolve(
    key: KeyArgument,
    *,
    found: Annotated[
        str | None,
        typer.Option("--found", metavar="ID", help="It happened: its id in the outside world."),
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="Its whole result, when an id is not enough.")
    ] = None,
    absent: Annotated[
        bool, typer.Option("--absent", help="It did not happen: it may be sent again.")
    ] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Give it up: the step's call fails for good.")
    ] = False,
    by: By = None,
    reason: Annotated[str, typer.Option(help="How you know, for the history.")] = "no reason given",
    as_json: Json = False,
) -> None:
    """Say what became of an effect, after looking at the outside world. Its step then goes on."""
    if sum((found is not None, absent, abandon)) != 1:
        raise UsageProblem("Say one of --found ID, --absent and --abandon.")
    if result is not None and found is None:
        raise UsageProblem("--result belongs to --found ID: only what happened has a result.")
    schema.require()
    done = _resolve(key, found, result=result, absent=absent, by=actor(by), reason=reason)
    _go_on(done.run_id)
    why = watch.why(done.run_id)
    answer = {"resolved": done, "why": why.word, "why_sentence": why.sentence}
    emit(answer, as_json=as_json, show=lambda: say(f"{done.key}: {done.finding}. {why.sentence}"))
    if done.arrives_until is not None:
        note(
            f"onward: a request that was sent may still arrive until {done.arrives_until:%Y-%m-%d %H:%M:%S}; "
            "should it, this effect happens twice."
        )


def tell_of_run(run_id: str) -> None:
    """The effects of a run in one line, and the stories of those that did not simply succeed."""
    found = stories.list_effects(run_id=run_id, limit=100_000)[::-1]
    if not found:
        return
    told = [one for one in found if not _went_well(one)] or found
    lines = stories.story(run_id)
    say("")
    say(f"effects: {_counted(found)}")
    for effect in told[:_TOLD]:
        say(f"\n{effect.key}  {effect.state}")
        _tell([line for line in lines if line.effect == effect.key])
    if len(told) > _TOLD:
        note(f"{len(told) - _TOLD} more; `onward effects list --run {run_id}` has all.")


def _resolve(
    key: str, found: str | None, *, result: str | None, absent: bool, by: str, reason: str
) -> Resolved:
    if found is not None:
        text = result_of(stories.get_effect(key), external_id=found, given=result)
        return resolving.found(key, external_id=found, result=text, by=by, reason=reason)
    if absent:
        return resolving.absent(key, by=by, reason=reason)
    return resolving.abandon(key, by=by, reason=reason)


def _go_on(run_id: str) -> None:
    """Now instead of at the next sweep, where this process has the agents."""
    compensations.reopen_resolved()
    try:
        recover_run(client.app(), run_id)
    except AgentsError as error:
        _log.info("The next sweep goes on with it: %s", error)


def _went_well(effect: EffectView) -> bool:
    return effect.source == "answer" and effect.sends == 1 and effect.undoes is None


def _counted(found: Sequence[EffectView]) -> str:
    words = [_word(one) for one in found]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _word(effect: EffectView) -> str:
    undo = "undo " if effect.undoes is not None else ""
    if effect.state == EffectState.UNKNOWN:
        return f"{undo}in doubt" + (", needs a person" if effect.person else "")
    how = {"lookup": " by look-up", "late_answer": " by a late answer", "person": " by a person"}
    return f"{undo}{effect.state}{how.get(effect.source or '', '')}"


def _list(found: list[EffectView], limit: int) -> None:
    columns = ("key", "tool", "class", "state", "sends", "looks", "since", "next look", "note")
    table(columns, (
        (one.key, one.tool, one.effect_class, one.state, one.sends, one.checks, one.created_at,
         None if one.person else one.due_at,
         f"needs a person: {one.person}" if one.person else one.source or one.error)
        for one in found
    ))  # fmt: skip
    if len(found) == limit:
        note(f"The newest {limit} effects; --limit shows more.")


def _show(effect: EffectView, advice: str | None, *, story: Sequence[Happening]) -> None:
    facts((
        ("effect", effect.key), ("state", effect.state), ("advice", advice),
        ("tool", f"{effect.tool} version {effect.tool_version} ({effect.effect_class})"),
        ("run", effect.run_id), ("step", effect.step_key), ("undoes", effect.undoes),
        ("sends", effect.sends), ("looks", effect.checks), ("result", effect.result),
    ))  # fmt: skip
    say("")
    _tell(story)


def _tell(lines: Sequence[Happening]) -> None:
    for line in lines:
        word = _WORDS.get(line.kind, line.kind.removeprefix("effect_").replace("_", " "))
        who = line.worker or ("" if line.actor == "onward" else line.actor)
        by = f", by {who}" if who and who not in line.detail else ""
        at = f"{line.at:%Y-%m-%d %H:%M:%S}.{line.at.microsecond // 1000:03}"
        say(f"  {at}  {word:<14} {line.detail}{by}")


_WORDS = {
    "effect_unknown": "lost", "effect_looked": "looked up", "effect_needs_person": "needs a person",
    "effect_late_answer": "late answer", "effect_sent_again": "sent again",
}  # fmt: skip
