"""How statements take the branches they are about: one, several, or those after a place, at a revision."""

from collections.abc import Sequence
from typing import TypeAlias

from models.journal.values import BranchRef

#: (run, branch) of the last row of a batch: the next goes on from there, so that rows which cannot be
#: handled never keep those behind them from being reached.
Place: TypeAlias = tuple[str, str]
START: Place = ("", "")


def one(ref: BranchRef) -> dict[str, object]:
    """Parameters of a statement about one branch."""
    return {"run_id": ref.run_id, "branch": ref.branch, "revision": ref.revision}


def arrays(refs: Sequence[BranchRef]) -> dict[str, object]:
    """Parameters of a statement about several branches."""
    return {
        "run_ids": [ref.run_id for ref in refs],
        "branches": [ref.branch for ref in refs],
        "revisions": [ref.revision for ref in refs],
    }


def page(limit: int, after: Place) -> dict[str, object]:
    """Parameters of a statement that reads on from a place."""
    return {"limit": limit, "after_run": after[0], "after_branch": after[1]}
