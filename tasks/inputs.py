"""What a claimed step works on: its bound arguments and what its predecessors recorded."""

from dataclasses import dataclass
from typing import Any, Final

from models.artifacts.errors import Withheld
from models.artifacts.payloads import load
from models.digests import digest_text
from models.errors import OnwardError
from models.journal import steps
from models.journal.errors import JournalError
from models.journal.values import Claimed
from models.plan import InputKind, PlanNode
from models.values import decode
from tasks.binding import NO_INPUT

NOTHING_BOUND: Final = '{"args":[],"kwargs":{}}'


@dataclass(frozen=True, slots=True)
class Given:
    """True texts of what a step works on, wherever they are kept."""

    arguments: str
    piped: str | None
    input_kind: str

    @property
    def digest(self) -> str:
        """Evidence that what was recorded is what was used."""
        return digest_text(f"{self.arguments}\n", self.piped or "")

    def read(self) -> tuple[list[object], dict[str, object], object, str]:
        """(args, kwargs, piped value, digest): as structures, so that a large text need not be held as well."""
        piped = self._piped()
        if self.arguments == NOTHING_BOUND:
            return [], {}, piped, self.digest
        bound: Any = decode(self.arguments)
        return bound["args"], bound["kwargs"], piped, self.digest

    def _piped(self) -> object:
        match InputKind(self.input_kind):
            case InputKind.NONE:
                return NO_INPUT
            case InputKind.EMPTY:
                return []
            case InputKind.GATHER | InputKind.PREVIOUS:
                assert self.piped is not None  # noqa: S101 - what came before completed, so it has an output
                return decode(self.piped)


def given(claimed: Claimed) -> Given:
    """What the step works on; a join gets its members' outputs as one list in input order.

    What is kept as artifacts is read here, and so verified, before any of the step's code runs. Raises
    ``ArtifactChanged``, ``ArtifactUnavailable`` or ``EncryptionProblem``.
    """
    piped = claimed.piped
    if claimed.gathers:
        piped = f"[{','.join(load(text) for _, text in steps.gathered(claimed))}]"
    elif piped is not None:
        piped = load(piped)
    return Given(load(claimed.arguments), piped, claimed.input_kind)


def digests(claimed: Claimed, output: str) -> tuple[str, str]:
    """(of the output, of the input): evidence that what was recorded is what was used."""
    return digest_text(output), given(claimed).digest


def is_final(error: OnwardError) -> bool:
    """Whether trying again would only raise it again. What the journal says of itself is another matter."""
    return not isinstance(error, JournalError | Withheld)


def as_node(claimed: Claimed) -> PlanNode:
    """The claimed step as its plan node, for the compiler of ``Then``."""
    return PlanNode(
        step_key=claimed.step_key, step_name=claimed.step_name, queue=claimed.queue, kind="step",
        branch=claimed.branch, input=InputKind(claimed.input_kind), arguments=claimed.arguments,
        successor=claimed.successor, joins=claimed.joins, join_index=claimed.join_index,
    )  # fmt: skip
