"""``onward runs budget`` and ``onward batch budget``: what may be spent, seen and changed by name."""

from typing import Annotated, TypeAlias

import typer

from models.journal import overview
from models.journal.call_values import Limits
from ops import budgets
from ops.budgets import Report
from ops.cli.asking import BatchArgument, By, RunArgument, actor, find_batch, find_run
from ops.cli.output import Json, emit, facts, say, table
from ops.cli.problems import UsageProblem
from tasks.budgets import Budget, BudgetError, amount

Tokens: TypeAlias = Annotated[int | None, typer.Option(help="Tokens of all model calls.")]
Cost: TypeAlias = Annotated[str | None, typer.Option(metavar="USD", help="Such as 5.00.")]
Calls: TypeAlias = Annotated[int | None, typer.Option(help="Model calls.")]
Seconds: TypeAlias = Annotated[float | None, typer.Option(help="Of wall-clock, from the start.")]
Attempts: TypeAlias = Annotated[int | None, typer.Option(help="Of each step.")]
Reason: TypeAlias = Annotated[str, typer.Option(help="Why, for the history.")]


def of_run(
    run: RunArgument, *, tokens: Tokens = None, cost: Cost = None, calls: Calls = None,
    seconds: Seconds = None, attempts: Attempts = None, by: By = None,
    reason: Reason = "no reason given", as_json: Json = False,
) -> None:  # fmt: skip
    """What a run may spend and has left; with a limit named, change it. `runs resume` then goes on."""
    limits = _limits(tokens=tokens, cost=cost, calls=calls, seconds=seconds, attempts=attempts)
    _act(find_run(run), limits, by=by, reason=reason, as_json=as_json)


def of_batch(
    batch: BatchArgument, *, tokens: Tokens = None, cost: Cost = None, calls: Calls = None,
    seconds: Seconds = None, attempts: Attempts = None, by: By = None,
    reason: Reason = "no reason given", as_json: Json = False,
) -> None:  # fmt: skip
    """The same of all runs of a batch together. `onward batch recover` then goes on with those blocked."""
    limits = _limits(tokens=tokens, cost=cost, calls=calls, seconds=seconds, attempts=attempts)
    found = overview.get_batch(find_batch(batch))
    _act(found.batch_id, limits, by=by, reason=reason, as_json=as_json)


def _limits(**given: object) -> Limits | None:
    """The limits named on the command line; None when there is none."""
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        return None
    try:
        asked = Budget.of(named)
    except BudgetError as error:
        raise UsageProblem(str(error)) from None
    return None if asked is None else asked.limits


def _act(
    owner_id: str, limits: Limits | None, *, by: str | None, reason: str, as_json: bool
) -> None:
    report = budgets.of(owner_id)
    if limits is not None:
        report = budgets.change(report, limits, by=actor(by), reason=reason)
    answer = {**report.as_dict(), "changed": limits is not None}
    emit(answer, as_json=as_json, show=lambda: _show(owner_id, report, changed=limits is not None))


def _show(owner_id: str, report: Report, *, changed: bool) -> None:
    if changed:
        say(f"The budget of {owner_id} is changed; what it blocked goes on when it is resumed.")
    if report.standing.wallet_id != owner_id:
        say(f"{owner_id} is paid from the wallet of {report.standing.wallet_id}.")
    table(
        ("", "limit", "spent", "reserved", "left"),
        (
            (line.what, amount(line.what, line.limit), *(
                "" if one is None else amount(line.what, one)
                for one in (line.spent, line.reserved, line.left)
            ))
            for line in report.lines
        ),
    )  # fmt: skip
    facts((
        ("recovery cost", report.recovery), ("paid from as well", ", ".join(report.payers)),
        *((f"changed {at:%Y-%m-%d %H:%M:%S}Z", f"by {who}: {what}") for at, who, what in report.changes),
    ))  # fmt: skip
