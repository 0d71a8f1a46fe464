"""What a claimed step works on: its bound arguments and what its predecessors recorded."""

from dataclasses import replace
from typing import Any, Final

from models.digests import digest_text
from models.errors import OnwardError
from models.journal import steps
from models.journal.errors import JournalError
from models.journal.values import Claimed
from models.plan import InputKind, PlanNode
from models.values import decode
from tasks.binding import NO_INPUT

NOTHING_BOUND: Final = '{"args":[],"kwargs":{}}'


def read(claimed: Claimed) -> tuple[list[object], dict[str, object], object]:
    """(args, kwargs, piped value) as structures, from what the journal holds."""
    piped = _piped(claimed)
    if claimed.arguments == NOTHING_BOUND:
        return [], {}, piped
    bound: Any = decode(claimed.arguments)
    return bound["args"], bound["kwargs"], piped


def gathered(claimed: Claimed) -> Claimed:
    """A join's input, its members' outputs as one list in input order, put where a predecessor's output is."""
    if not claimed.gathers:
        return claimed
    return replace(claimed, piped=f"[{','.join(text for _, text in steps.gathered(claimed))}]")


def _piped(claimed: Claimed) -> object:
    match InputKind(claimed.input_kind):
        case InputKind.NONE:
            return NO_INPUT
        case InputKind.EMPTY:
            return []
        case InputKind.GATHER | InputKind.PREVIOUS:
            assert claimed.piped is not None  # noqa: S101 - what came before completed, so it has an output
            return decode(claimed.piped)


def digests(claimed: Claimed, output: str) -> tuple[str, str]:
    """(of the output, of the input): evidence that what was recorded is what was used."""
    return digest_text(output), digest_text(f"{claimed.arguments}\n{claimed.piped or ''}")


def is_final(error: OnwardError) -> bool:
    """Whether trying again would only raise it again. What the journal says of itself is another matter."""
    return not isinstance(error, JournalError)


def as_node(claimed: Claimed) -> PlanNode:
    """The claimed step as its plan node, for the compiler of ``Then``."""
    return PlanNode(
        step_key=claimed.step_key, step_name=claimed.step_name, queue=claimed.queue, kind="step",
        branch=claimed.branch, input=InputKind(claimed.input_kind), arguments=claimed.arguments,
        successor=claimed.successor, joins=claimed.joins, join_index=claimed.join_index,
    )  # fmt: skip
