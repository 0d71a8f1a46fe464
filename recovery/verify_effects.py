"""Does what the journal says of a run's effects hold together? Pure.

Of a run that is over, and of every completed step, no effect is in doubt; the results of settled ones are
those that were recorded; a compensated run has each of its effects undone or given up. What an earlier attempt
did and the finished body did not ask for again happened behind the result's back: it is named until it is
undone, and listed then.
"""

from collections.abc import Iterator

from models.journal.evidence import EffectFact, Evidence
from models.states import EffectClass, EffectState, RunState
from recovery.findings import Finding

#: A failed run may be sent back, and then sends again what its provider still honours the key of.
_OVER = (RunState.COMPLETED, RunState.CANCELLED, RunState.COMPENSATED)
_IN_DOUBT = (EffectState.INTENDED, EffectState.UNKNOWN)


def of_effects(facts: Evidence) -> Iterator[Finding]:
    """What does not hold."""
    undos = {effect.undoes: effect for effect in facts.effects if effect.undoes is not None}
    known = {effect.key for effect in facts.effects}
    for effect in facts.effects:
        if effect.state in _IN_DOUBT and _is_due(facts, effect):
            yield Finding("effect_in_doubt", effect.key, _doubt(facts, effect))
        if effect.result_now != effect.result_digest:
            yield Finding(
                "effect_changed", effect.key, f"recorded as {effect.result_digest}, is {effect.result_now}"
            )  # fmt: skip
        if effect.undoes is not None and effect.undoes not in known:
            yield Finding(
                "undo_of_nothing", effect.key, f"undoes {effect.undoes}, which is not known"
            )
        if _stands(effect, undos):
            yield from _standing(facts, effect)


def left_over(facts: Evidence) -> list[str]:
    """Effects that the finished body of their step did not ask for again, in words, undone ones included."""
    undos = {effect.undoes: effect for effect in facts.effects if effect.undoes is not None}
    return [
        f"{effect.key} of {effect.tool} (step {effect.step_key}) was not asked for again: "
        f"{_fate(undos.get(effect.key))}"
        for effect in facts.effects
        if effect.unasked
    ]


def _is_due(facts: Evidence, effect: EffectFact) -> bool:
    if effect.undoes is not None:
        return facts.state == RunState.COMPENSATED
    return facts.state in _OVER or effect.step_completed


def _doubt(facts: Evidence, effect: EffectFact) -> str:
    over = f"the run is {facts.state}" if facts.state in _OVER else "its step is completed"
    waits = f": {effect.person}" if effect.person else ""
    return f"{over}, and it is {effect.state}{waits}"


def _stands(effect: EffectFact, undos: dict[str, EffectFact]) -> bool:
    """It happened, and nobody has undone it or given that up."""
    happened = effect.state == EffectState.SETTLED and effect.effect_class != EffectClass.PURE
    undo = undos.get(effect.key)
    ended = undo is not None and undo.state in (EffectState.SETTLED, EffectState.ABANDONED)
    return happened and effect.undoes is None and not ended


def _standing(facts: Evidence, effect: EffectFact) -> Iterator[Finding]:
    if facts.state == RunState.COMPENSATED:
        yield Finding("not_undone", effect.key, "the run is compensated, and this was not undone")
    elif effect.unasked:
        yield Finding(
            "effect_not_asked_again", effect.key, f"an earlier attempt of step {effect.step_key!r} did it, and its "
            f"result does not know of it: `onward runs compensate {facts.run_id} --only {effect.key}` undoes it",
        )  # fmt: skip


def _fate(undo: EffectFact | None) -> str:
    match undo.state if undo is not None else None:
        case None:
            return "not undone"
        case EffectState.SETTLED:
            return "undone"
        case EffectState.ABANDONED:
            return "its undoing was given up by a person"
        case _:
            return "being undone"
