"""Where a step meets its run's wallet: before its body, and when the body asks how much is left."""

from models.journal import wallets
from models.journal.call_values import Standing
from models.journal.values import Claimed
from tasks.budgets import BudgetView, RunBudget, refusal, view_of

_HIGHEST = 20  #: wallets above one another; a run within a run within a batch has three


def require_budget(claimed: Claimed) -> None:
    """Raise ``EffectBlocked`` when the run is out of time, or this step out of attempts.

    Asked before the body, since a step that crashes before its first model call would never ask.
    """
    if claimed.wallet_id is None:
        return
    exceeded = wallets.check(claimed)
    if exceeded is not None:
        raise refusal(exceeded, claimed)


def budget_of(run_id: str) -> RunBudget:
    """What ``ctx.budget`` is in a run: read anew at each look."""
    return RunBudget(lambda: read(run_id))


def read(run_id: str) -> BudgetView:
    """How the run's money stands now."""
    return view_of(chain(run_id))


def chain(owner_id: str) -> list[Standing]:
    """The wallet of a run or a batch, then those that pay for it as well, upwards."""
    found = [wallets.standing(owner_id)]
    while (parent := found[-1].parent_id) is not None and len(found) < _HIGHEST:
        found.append(wallets.standing(parent))
    return found
