"""Does a run's wallet say of itself what was charged and set aside? And what did its recovery cost?"""

from models.journal import budgets, wallets
from recovery.findings import Finding


def look(run_id: str) -> list[Finding]:
    """Wallets that say less than they should: requests would be let through that nothing is left for."""
    return [
        Finding(
            "wallet_short", f"wallet {wallet_id}",
            f"it says {says} {what}, and {true} are on record for run {run_id} alone",
        )
        for wallet_id, what, says, true in budgets.short_books(run_id)
    ]  # fmt: skip


def recovery_cost(run_id: str) -> list[str]:
    """What was paid twice, in a line; nothing when nothing was."""
    it = wallets.standing(run_id)
    if not (it.recovery_tokens or it.recovery_cost or it.recovery_seconds):
        return []
    return [
        f"recovery cost {it.recovery_tokens:,} tokens, {it.recovery_cost} USD and {it.recovery_seconds:.1f} s: answers "
        f"that were lost with their owners, and time that lost attempts had worked"
    ]
