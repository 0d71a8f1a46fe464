"""What the command line asks of the demo, held against a batch that an earlier start left unfinished."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from examples.contract_review.corpus import SIZE
from ops.demo.memory import Memory
from ops.demo.schedule import FaultKind, fitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options as they were given; None for one that was not."""

    documents: int | None = None
    seed: int | None = None
    kills: bool | None = None
    faults: tuple[FaultKind, ...] | None = None

    def begin(self) -> Memory:
        """A batch of its own, with the default of every option that was not given."""
        documents = self.documents or SIZE
        kinds = fitting(documents) if self.faults is None else self.faults
        return Memory.begin(
            documents=documents,
            seed=secrets.randbelow(10_000) if self.seed is None else self.seed,
            kinds=() if self.kills is False else tuple(map(str, kinds)),
        )

    def contradicts(self, known: Memory) -> bool:
        """Whether going on with that batch would not do what was asked."""
        return (
            self.documents not in (None, known.documents)
            or self.seed not in (None, known.seed)
            or self._other_faults(known.kinds)
        )

    def _other_faults(self, kinds: Sequence[str]) -> bool:
        if self.kills is False:
            return bool(kinds)
        if self.faults is not None:
            return set(self.faults) != set(kinds)
        return self.kills is True and not kinds


def refusal(known: Memory) -> str:
    """Why a start with other options does not go on with the unfinished batch, and what to do."""
    faults = f"the faults {', '.join(known.kinds)}" if known.kinds else "no kills"
    return (
        f"{known.batch_id} of an earlier start is not finished ({known.documents} contracts, seed "
        f"{known.seed}, {faults}), and these options ask for another one: run `onward demo` without "
        "them to finish it, or add --new to drop it and start afresh"
    )
