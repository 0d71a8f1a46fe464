"""Canvas -> plan: keys, branches, joins and limits, decided once and stored.

Length is walked in a loop and only groups within groups recurse, so the number of steps is bounded
by ``ONWARD_PLAN_LIMIT`` and never by Python's stack. A group's branches are named by its ordinal
(``0/2.1``: second group of the plan, member 1); below a step that adds work while running they also
carry that step's key (``0/think#2.1.0``), so they cannot meet branches that exist already.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.plan import ROOT_BRANCH, InputKind, Plan, PlanNode, Successor
from models.redaction import redact
from models.settings import settings
from tasks.canvas import Canvas, Chain, Group, Signature, as_canvas
from tasks.errors import PlanCircle, PlanError, PlanTooDeep, PlanTooLong, PlanTooWide
from tasks.keys import ADVICE, StepKeys, Taken
from tasks.step import GATHER, BoundStep

if TYPE_CHECKING:
    from tasks.workflow import Workflow

_DEPTH_CEILING = (
    200  #: Python's own stack carries this many groups within groups with room to spare
)
_BRANCH_BYTES = 2000  #: a B-tree entry of Postgres holds about 2,700


@dataclass(slots=True)
class _Draft:
    key: str
    bound: BoundStep
    signature: Signature
    branch: str
    input: InputKind
    before: "tuple[_Draft, ...]"
    successor: Successor = field(default_factory=Successor)
    joins: str | None = None
    join_index: int | None = None
    tolerant: bool = False


@dataclass(frozen=True, slots=True)
class _Path:
    head: Successor
    tail: _Draft


@dataclass(frozen=True, slots=True)
class _Fork:
    heads: tuple[str, ...]
    tails: tuple[_Draft, ...]
    tolerant: bool


def compile_plan(
    signature: Canvas, *, workflow: "Workflow[...]", branch: str = ROOT_BRANCH
) -> Plan:
    """The whole plan of a new run."""
    compiler = _Compiler(workflow)
    path = compiler.walk(as_canvas(signature), branch=branch, piped=InputKind.NONE)
    return Plan(entry=path.head, nodes=compiler.nodes())


def compile_insertion(
    signature: Canvas,
    *,
    workflow: "Workflow[...]",
    branch: str,
    after: PlanNode,
    taken: Taken,
    planned: int = 0,
) -> Plan:
    """Steps that ``after`` put between itself and what followed it.

    The new tail takes over the successor and the join of ``after``; ``entry`` is what follows
    ``after`` now. ``taken`` tells how many keys of a stem the run has (see ``occurrences``),
    ``planned`` how many steps.
    """
    compiler = _Compiler(workflow, taken=taken, planned=planned, after=after.step_key)
    path = compiler.walk(as_canvas(signature), branch=branch, piped=InputKind.PREVIOUS)
    path.tail.successor = after.successor
    path.tail.joins, path.tail.join_index = after.joins, after.join_index
    return Plan(entry=path.head, nodes=compiler.nodes())


class _Compiler:
    def __init__(
        self,
        workflow: "Workflow[...]",
        *,
        taken: Taken | None = None,
        planned: int = 0,
        after: str | None = None,
    ) -> None:
        self._workflow = workflow
        self._keys = StepKeys(workflow.name, taken=taken, after=after)
        self._planned = planned
        self._after = after
        self._limits = settings()
        self._drafts: list[_Draft] = []
        self._open_groups: set[int] = set()
        self._groups = 0

    def walk(
        self, canvas: Canvas, *, branch: str, piped: InputKind, opener: tuple[_Draft, ...] = ()
    ) -> _Path:
        """Lay the links of one branch behind one another. ``piped`` is what the first one gets."""
        head: Successor | None = None
        last: _Draft | None = None
        fork: _Fork | None = None
        for link in _stepwise(canvas, member=bool(self._open_groups)):
            before = (last,) if last else opener
            if isinstance(link, Group):
                fork = self._open(link, branch=branch, piped=piped, opener=before)
                continue
            draft = self._lay(link, branch=branch, piped=piped, fork=fork, before=before)
            edge = Successor(draft.key, fork.heads if fork else ())
            if last is None:
                head = edge
            else:
                last.successor = edge
            if draft.signature is not _PASS_ON or draft.input is not InputKind.NONE:
                piped = InputKind.PREVIOUS
            last, fork = draft, None
        if head is None or last is None:
            raise PlanError(f"the plan of {self._workflow.name} has no step")
        return _Path(head, last)

    def nodes(self) -> tuple[PlanNode, ...]:
        """What was laid, in the order it was written."""
        return tuple(self._node(draft) for draft in self._drafts)

    def _open(
        self, group: Group, *, branch: str, piped: InputKind, opener: tuple[_Draft, ...]
    ) -> _Fork:
        self._check_group(group, branch)
        self._open_groups.add(id(group))
        self._groups += 1
        below = (
            f"{branch}/{self._after}.{self._groups}" if self._after else f"{branch}/{self._groups}"
        )
        paths = [
            self.walk(member, branch=f"{below}.{index}", piped=piped, opener=opener)
            for index, member in enumerate(group.members)
        ]
        self._open_groups.discard(id(group))
        heads = tuple(path.head.next_key or "" for path in paths)
        return _Fork(heads, tuple(path.tail for path in paths), group.tolerant)

    def _check_group(self, group: Group, branch: str) -> None:
        workflow, limits = self._workflow.name, self._limits
        if id(group) in self._open_groups:
            raise PlanCircle(f"a group in the plan of {workflow} contains itself; {ADVICE}")
        if len(group.members) > limits.group_limit:
            raise PlanTooWide(
                f"a group in the plan of {workflow} has {len(group.members)} members; the limit is "
                f"{limits.group_limit} (ONWARD_GROUP_LIMIT): split it, or make each member do more"
            )
        depth, limit = branch.count("/") + 1, min(limits.depth_limit, _DEPTH_CEILING)
        if depth > limit or len(branch.encode()) > _BRANCH_BYTES:
            raise PlanTooDeep(
                f"groups in the plan of {workflow} are nested {depth} deep or more; the limit "
                f"is {limit} (ONWARD_DEPTH_LIMIT) and {_BRANCH_BYTES} bytes of "
                "branch id: flatten them"
            )

    def _lay(
        self,
        link: Signature,
        *,
        branch: str,
        piped: InputKind,
        fork: _Fork | None,
        before: tuple[_Draft, ...],
    ) -> _Draft:
        count = self._planned + len(self._drafts)
        if count >= self._limits.plan_limit:
            raise PlanTooLong(
                f"the plan of {self._workflow.name} has {count + 1} steps or more; the limit is "
                f"{self._limits.plan_limit} (ONWARD_PLAN_LIMIT): split the work into several runs"
            )
        if fork and fork.tails:
            before = fork.tails
        draft = _Draft(
            key=self._keys.give(link, before=before),
            bound=self._workflow.bound(link.step),
            signature=link,
            branch=branch,
            input=_input(link, piped=piped, fork=fork),
            before=before,
            tolerant=bool(fork and fork.tolerant),
        )
        for index, tail in enumerate(fork.tails if fork else ()):
            tail.joins, tail.join_index = draft.key, index
        self._drafts.append(draft)
        return draft

    def _node(self, draft: _Draft) -> PlanNode:
        bound, link = draft.bound, draft.signature
        return PlanNode(
            step_key=draft.key,
            step_name=bound.name,
            queue=self._workflow.queue(link.queue or bound.options.queue),
            kind=bound.options.kind,
            branch=draft.branch,
            input=draft.input,
            arguments=redact(
                bound.parameters.dump(
                    link.args, link.kwargs, piped=draft.input is not InputKind.NONE
                )
            ),
            successor=draft.successor,
            joins=draft.joins,
            join_index=draft.join_index,
            tolerant=draft.tolerant,
            untracked=bound.options.untracked,
            has_lookup=bound.options.lookup is not None,
            rate_limit=bound.options.rate_limit,
            throttle=bound.name if bound.options.rate_limit else None,
        )


_PASS_ON = Signature(GATHER)


def _stepwise(canvas: Canvas, *, member: bool) -> Iterator[Signature | Group]:
    """The links of a branch, with a pass-on step wherever a group would have no step to wait at.

    A group needs one behind it to join in, and a member that begins with a group needs one before
    it, since a branch is started at a step.
    """
    open_group = False
    start = member
    for link in canvas.links() if isinstance(canvas, Chain) else (canvas,):
        if isinstance(link, Group):
            if open_group or start:
                yield _PASS_ON
            open_group = True
        else:
            open_group = False
        start = False
        yield link
    if open_group:
        yield _PASS_ON


def _input(link: Signature, *, piped: InputKind, fork: _Fork | None) -> InputKind:
    if link.immutable:
        return InputKind.NONE
    if fork is None:
        return piped
    return InputKind.GATHER if fork.heads else InputKind.EMPTY
