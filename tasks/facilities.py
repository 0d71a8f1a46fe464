"""What a step of a run is offered beside calls and requests. Each part is imported when it is first used."""

from dataclasses import dataclass
from typing import Any

from models.journal.values import Claimed
from tasks.context import Context


@dataclass(frozen=True, slots=True)
class OfRun:
    """The facilities of one attempt."""

    claimed: Claimed

    def llm(self, ctx: Context) -> Any:
        from tasks.llm import make  # noqa: PLC0415 - the SDKs are installed where they are used

        return make(ctx)

    def artifact(self, ctx: Context) -> Any:
        from tasks.stored import make  # noqa: PLC0415 - few steps need them

        return make(ctx, self.claimed)

    def budget(self, ctx: Context) -> Any:
        from tasks.budgets import make  # noqa: PLC0415 - few steps ask

        return make(ctx, self.claimed)
