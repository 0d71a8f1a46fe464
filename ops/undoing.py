"""What compensating a run would do, before it is done: what is undone, in which order, and what cannot be."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from models.journal import compensations, history
from models.journal.compensations import EffectStanding
from models.states import EffectClass, EffectState
from tasks import registry
from tasks.errors import AgentsError
from tasks.tool_registry import tool_named


@dataclass(frozen=True, slots=True)
class Line:
    """One effect, and what is to be known about undoing it."""

    key: str
    step_key: str
    tool: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What compensating a run would do."""

    run_id: str
    state: str
    asked_first: tuple[Line, ...]  #: may have happened: looked up, then undone if they did
    undo: tuple[Line, ...]  #: in this order
    cannot: tuple[Line, ...]  #: left to a person in the end
    undone: tuple[Line, ...]  #: already
    unseen: tuple[str, ...]  #: steps that ran and whose doings Onward cannot see

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be asked, undone or left to a person."""
        return not (self.asked_first or self.undo or self.cannot)


def preview(run_id: str, *, only: Sequence[str] = ()) -> Preview:
    """What compensating this run now would do; ``only`` of these effects. Raises ``UnknownRun``."""
    run = history.get_run(run_id)
    with suppress(AgentsError):  # then a worker sees what its tools can do
        registry.load_agents()
    groups: dict[str, list[Line]] = {"asked": [], "undo": [], "cannot": [], "undone": []}
    for one in compensations.standings(run_id):
        if not only or one.key in only:
            group, remark = _judge(one)
            groups[group].append(Line(one.key, one.step_key, one.tool, remark))
    return Preview(
        run_id=run_id, state=run.state, asked_first=tuple(groups["asked"]), undo=tuple(groups["undo"]),
        cannot=tuple(groups["cannot"]), undone=tuple(groups["undone"]),
        unseen=() if only else tuple(compensations.untracked_steps(run_id)),
    )  # fmt: skip


def _judge(effect: EffectStanding) -> tuple[str, str]:
    """Where an effect belongs, and what to say of it."""
    if effect.undo_state in (EffectState.SETTLED, EffectState.ABANDONED):
        return "undone", "undone" if effect.undo_state == EffectState.SETTLED else "given up"
    if effect.state == EffectState.ABANDONED:
        return "cannot", "a person gave it up: nobody knows whether it happened"
    if effect.state != EffectState.SETTLED:
        return "asked", effect.person or "it is not known whether it happened"
    if effect.undo_person is not None:
        return "undo", f"not undone so far: {effect.undo_person}"
    return _by_its_tool(effect)


def _by_its_tool(effect: EffectStanding) -> tuple[str, str]:
    remarks = ["its finished step did not ask for it again"] if effect.unasked else []
    try:
        tool = tool_named(effect.tool)
    except LookupError:
        return "undo", "; ".join(
            [*remarks, "its tool is not loaded here: a worker sees whether it can"]
        )
    if not tool.can_compensate:
        return "cannot", "its tool has no compensate"
    if effect.effect_class == EffectClass.ONCE and not tool.can_look_up_undo:
        remarks.append("ONCE: should the answer be lost, a person says whether it was undone")
    return "undo", "; ".join(remarks)
