"""The report as tables for people."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ops.demo.naive import NaiveResult
from ops.demo.report import Report, violations
from ops.demo.schedule import FaultKind


def show(console: Console, report: Report, naive: NaiveResult | None) -> None:
    """Print everything that was found out."""
    console.print(Group(*_parts(report, naive)))


def _parts(report: Report, naive: NaiveResult | None) -> list[RenderableType]:
    parts: list[RenderableType] = [_counts(report)]
    if report.faults:
        parts += [_faults(report), _saved(report)]
    if report.doubts:
        parts.append(_doubts(report))
    if naive is not None:
        parts.append(_beside(report, naive))
    parts.append(_verdict(report))
    return parts


def _counts(report: Report) -> Table:
    outside, progress = report.testimony, report.progress
    table = Table(title="What was counted", title_justify="left")
    table.add_column("count")
    table.add_column("is", justify="right")
    table.add_column("should be", justify="right")
    table.add_column("counted by")
    more = report.steps_executed - progress.steps_planned
    rows = (
        ("documents completed", progress.completed, report.documents, "journal"),
        ("filings", outside.filings, report.documents, "registry"),
        ("duplicate filings", outside.duplicate_filings, 0, "registry"),
        ("  requests for them", outside.filing_requests, report.documents, "registry"),
        ("  answers it lost on purpose", outside.responses_dropped, "", "registry"),
        ("LLM calls", outside.llm_calls, report.llm_calls_minimum, "model server"),
        ("  replayed from the record", report.replays.calls, _replays_wanted(report), "journal"),
        ("  of those, asked for again", report.replays.asked_again, 0, "model server"),
        ("steps executed", report.steps_executed, progress.steps_planned, "journal"),
        ("  beyond the plan", more, f"at most {report.leases_held}", "leases held at the kills"),
        ("results from before a fault", report.results_kept, "", "digests taken by the demo"),
        ("  changed since", report.results_changed, 0, "digests taken by the demo"),
    )
    for name, found, wanted, by in rows:
        table.add_row(name, f"{found:,}", f"{wanted:,}" if isinstance(wanted, int) else wanted, by)
    return table


def _replays_wanted(report: Report) -> str:
    return "at least 1" if FaultKind.ANSWERED_SIGKILL in report.played else ""


def _faults(report: Report) -> Table:
    table = Table(title="Faults, by the documents completed before them", title_justify="left")
    for column in ("docs", "fault", "victim", "held", "lost", "recovered by", "after"):
        table.add_column(
            column,
            justify="right" if column in ("docs", "held", "lost", "after") else "left",
            no_wrap=column == "fault",
        )
    for fault in report.faults:
        after = "never" if fault.seconds is None else f"{fault.seconds:.1f} s"
        rejected = fault.late_results_rejected
        late = f", {rejected} late result{'s' * (rejected > 1)} rejected" if rejected else ""
        table.add_row(
            str(fault.document),
            str(fault.kind),
            fault.victim.partition(" (pid")[0],
            str(fault.leases_held or ""),
            str(fault.steps_lost),
            "failed" if fault.problem else fault.recovered_by + late,
            after,
        )
    return table


def _doubts(report: Report) -> Table:
    table = Table(title="Filings whose outcome was unknown", title_justify="left")
    table.add_column("how it was settled")
    for column in ("filings", "look-ups", "longest in doubt"):
        table.add_column(column, justify="right")
    for ended in sorted({doubt.ended for doubt in report.doubts}):
        these = [doubt for doubt in report.doubts if doubt.ended == ended]
        longest = max(doubt.seconds for doubt in these)
        looks = sum(doubt.looks for doubt in these)
        table.add_row(ended, str(len(these)), str(looks), f"{longest:.1f} s")
    return table


def _saved(report: Report) -> Text:
    batch_seconds = sum(fault.saved.batch_seconds for fault in report.faults)
    batch_tokens = sum(fault.saved.batch_tokens for fault in report.faults)
    run_seconds = sum(fault.saved.run_seconds for fault in report.faults)
    run_tokens = sum(fault.saved.run_calls for fault in report.faults) * report.tokens_a_call
    replays, price = report.replays, report.cost_a_token
    repeated = max(0, report.testimony.llm_calls - report.llm_calls_minimum) * report.tokens_a_call
    return Text(
        f"Saved against starting the batch over at each fault: {batch_tokens:,} tokens "
        f"(${batch_tokens * price:,.2f}) and {batch_seconds:,.0f} s.\n"
        f"Saved against starting only the runs over that were hit: {run_tokens:,.0f} tokens "
        f"(${run_tokens * price:,.2f}) and {run_seconds:,.0f} s of work.\n"
        f"Saved by replaying {replays.calls} answer{'s' * (replays.calls != 1)} in the middle of a step: "
        f"{replays.tokens:,} tokens (${replays.cost:,.4f}), which the model server billed once.\n"
        f"Spent again by recovery: {repeated:,.0f} tokens (${repeated * price:,.2f}).\n"
        f"Dollars are at the prices that the demo gives its model server; all answers together cost "
        f"${replays.spent:,.2f}.\n"
    )


def _beside(report: Report, naive: NaiveResult) -> Table:
    table = Table(title="The same on plain acks_late chains", title_justify="left")
    table.add_column("")
    table.add_column("Onward", justify="right")
    table.add_column("plain Celery", justify="right")
    ours, theirs = report.testimony, naive.testimony
    rows = (
        ("documents", report.documents, naive.documents),
        ("filed", ours.distinct, theirs.distinct),
        ("never filed", report.documents - ours.distinct, naive.never_filed),
        ("duplicate filings", ours.duplicate_filings, theirs.duplicate_filings),
        ("answers lost on purpose", ours.responses_dropped, theirs.responses_dropped),
        ("LLM calls", ours.llm_calls, theirs.llm_calls),
        ("LLM calls that led to no filing", ours.lost_calls, theirs.lost_calls),
        ("seconds", round(report.seconds), round(naive.seconds)),
        ("faults", len(report.faults), len(naive.faults)),
    )
    for name, one, other in rows:
        table.add_row(name, f"{one:,}", f"{other:,}")
    return table


def _verdict(report: Report) -> Text:
    found = violations(report)
    if found:
        return Text("FAILED\n" + "\n".join(f"- {sentence}" for sentence in found), style="bold red")
    faults = len(report.faults) + len(report.earlier)
    through = f" through {faults} fault{'s' * (faults > 1)}" if faults else ""
    return Text(
        f"Every document was filed once{through} in {report.seconds:.0f} s, and no finished step was "
        "repeated.",
        style="bold green",
    )
