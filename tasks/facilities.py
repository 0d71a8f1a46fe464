"""What a step of a run is offered beside calls and requests. Each part is imported when it is first used."""

from dataclasses import dataclass
from typing import Any

from models.journal.values import Claimed
from tasks.budgets import RunBudget
from tasks.context import Context


@dataclass(frozen=True, slots=True)
class OfRun:
    """The facilities of one attempt."""

    claimed: Claimed

    def artifact(self, ctx: Context) -> Any:
        from tasks.stored import make  # noqa: PLC0415 - few steps need them

        return make(ctx, self.claimed)

    def budget(self, ctx: Context) -> RunBudget:  # noqa: ARG002 - its run is known
        from tasks.paying import budget_of  # noqa: PLC0415 - few steps ask

        return budget_of(self.claimed.run_id)
