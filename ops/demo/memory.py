"""What the demo remembers in its home, so that the next start goes on with a batch that was cut short."""

import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from models.ids import new_batch_id
from ops.stack import Home
from ops.stack.home import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One batch of the demo."""

    batch_id: str
    documents: int
    seed: int
    kinds: tuple[str, ...]
    leases_held: int = 0  #: at kills of earlier sessions, the end of each session included
    seconds: float = 0.0  #: that earlier sessions took
    faults: tuple[dict[str, Any], ...] = field(default=())  #: already done and recovered from
    finished: bool = False

    @classmethod
    def begin(cls, *, documents: int, seed: int, kinds: tuple[str, ...]) -> Self:
        return cls(batch_id=new_batch_id(), documents=documents, seed=seed, kinds=kinds)

    @classmethod
    def unfinished(cls, home: Home) -> Self | None:
        """The batch that an earlier start did not bring to its end."""
        try:
            fields = json.loads(_file(home).read_text())
            known = cls(**{**fields, **{name: tuple(fields[name]) for name in ("kinds", "faults")}})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return None if known.finished else known

    def save(self, home: Home) -> Self:
        write_private(_file(home), json.dumps(asdict(self), indent=2))
        return self

    def with_fault(self, fault: dict[str, Any], *, leases_held: int) -> Self:
        return replace(
            self, faults=(*self.faults, fault), leases_held=self.leases_held + leases_held
        )

    def charged(self, leases_held: int) -> Self:
        """With the claims that the end of an earlier session cost."""
        return replace(self, leases_held=leases_held)

    def ended(self, seconds: float, *, finished: bool) -> Self:
        return replace(self, seconds=seconds, finished=finished)

    def store(self, home: Home) -> Path:
        """Where the outside world of this batch keeps its books."""
        return _stores(home) / self.batch_id

    def forget_others(self, home: Home) -> None:
        """Remove the books of finished batches; the journal keeps their runs."""
        for store in _stores(home).glob("*"):
            if store.name != self.batch_id:
                shutil.rmtree(store, ignore_errors=True)


def _file(home: Home) -> Path:
    return home.path / "demo.json"


def _stores(home: Home) -> Path:
    return home.path / "outside"
