"""What the demo concludes from its counts."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from ops.demo.doubts import Doubt
from ops.demo.evidence import Fate, Progress
from ops.demo.keepsake import differences
from ops.demo.picture import draw
from ops.demo.records import FaultRecord, Mechanism, Replays, mechanism_of, named
from ops.demo.report import Report, violations
from ops.demo.schedule import FaultKind
from ops.demo.tables import show
from ops.demo.view import Rate
from ops.demo.witnesses import Witnessed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS = {
    "documents", "completed", "failed", "filings", "duplicate_filings", "duplicates_refused",
    "llm_calls", "llm_calls_minimum", "steps_executed", "steps_minimum", "leases_held_at_kills",
    "faults", "results_changed",
}  # fmt: skip
KILL = FaultRecord(
    kind=FaultKind.CHILD_SIGKILL, document=89, at_seconds=41.23, victim="a child of worker-1 (pid 7)",
    leases_held=1, steps_lost=1, recovered_by="child fast path", seconds=1.234,
)  # fmt: skip
FOUND = Doubt(
    run_id="run-1", key="run-1:file:registry.file:1", settled_by="lookup", sends=1, seconds=0.75, looks=1,
    cause="no answer",
)  # fmt: skip
GOOD = Report(
    documents=10,
    progress=Progress(documents=10, completed=10, stopped=0, steps_done=80, steps_planned=80),
    testimony=Witnessed(
        filings=10,
        distinct=10,
        duplicate_filings=0,
        filing_requests=10,
        look_ups=2,
        responses_dropped=1,
        llm_calls=31,
        tokens=310,
    ),
    doubts=(FOUND, replace(FOUND, run_id="run-2", settled_by="answer", sends=2)),
    steps_executed=81,
    leases_held=1,
    results_kept=50,
    results_changed=0,
    seconds=12.0,
    faults=(KILL,),
)


def test_a_good_run_is_good_and_says_so_in_json() -> None:
    assert violations(GOOD) == []
    told = GOOD.to_json()
    assert told.keys() >= KEYS
    assert told["llm_calls_minimum"] == 30
    assert told["faults"][0]["kind"] == "child_sigkill"
    assert told["faults"][0].keys() >= {"kind", "at", "recovered_by", "seconds"}
    assert [one["settled_by"] for one in told["unknown_effects"]] == ["lookup", "answer"]


def test_the_report_says_how_each_unknown_was_settled() -> None:
    console = Console(file=io.StringIO(), record=True, width=120)
    show(console, GOOD, None)
    shown = " ".join(console.export_text().split())
    assert "found by asking, not sent again │ 1 │ 1 │ 0.8 s" in shown
    assert "proven absent, then sent again │ 1 │ 1 │ 0.8 s" in shown


def test_the_report_says_what_was_replayed_and_what_that_saved() -> None:
    replays = Replays(calls=2, tokens=20, cost=Decimal("0.0005"), spent=Decimal("0.00775"))
    killed = replace(KILL, kind=FaultKind.ANSWERED_SIGKILL)
    report = replace(GOOD, replays=replays, faults=(killed,))
    console = Console(file=io.StringIO(), record=True, width=120)
    show(console, report, None)
    shown = " ".join(console.export_text().split())
    assert "replayed from the record │ 2 │ at least 1 │ journal" in shown
    assert "of those, asked for again │ 0 │ 0 │ model server" in shown
    assert "Saved by replaying 2 answers in the middle of a step: 20 tokens ($0.0005)" in shown
    told = report.to_json()
    saved = [told[name] for name in ("llm_calls_replayed", "tokens_saved", "cost_saved")]
    assert saved == [2, 20, "0.0005"]


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (replace(GOOD, steps_executed=82), "2 steps were executed beyond the plan"),
        (replace(GOOD, results_changed=3), "3 of 50 results"),
        (replace(GOOD, problems=("nothing moved",)), "nothing moved"),
        (
            replace(GOOD, testimony=replace(GOOD.testimony, filings=9, distinct=9)),
            "9 filings for 10",
        ),
        (replace(GOOD, testimony=replace(GOOD.testimony, distinct=9)), "about 9 documents only"),
        (
            replace(GOOD, testimony=replace(GOOD.testimony, duplicate_filings=2)),
            "2 duplicate filings",
        ),
        (replace(GOOD, testimony=replace(GOOD.testimony, llm_calls=29)), "fewer than the 30"),
        (replace(GOOD, progress=replace(GOOD.progress, completed=9)), "9 of 10 documents"),
        (replace(GOOD, progress=replace(GOOD.progress, stopped=1)), "1 of 10 documents failed"),
        (replace(GOOD, progress=replace(GOOD.progress, documents=9)), "9 documents were submitted"),
        (
            replace(GOOD, replays=Replays(calls=1, asked_again=1)),
            "1 times for answers that were on record",
        ),
        (replace(GOOD, replays=Replays(never_given=1)), "none that the model server gave"),
        (
            replace(GOOD, faults=(replace(KILL, kind=FaultKind.ANSWERED_SIGKILL),)),
            "no later attempt had it",
        ),
        (
            replace(GOOD, earlier=({"kind": "answered_sigkill", "problem": ""},)),
            "no later attempt had it",
        ),
        (
            replace(GOOD, earlier=({"kind": "beat_sigkill", "problem": "no sweep came"},)),
            "no sweep came",
        ),
        (replace(GOOD, doubts_open=2), "nobody knows what became of 2 filings"),
        (replace(GOOD, faults=(replace(KILL, leases_held=0),)), "hit no process"),
        (replace(GOOD, faults=(replace(KILL, problem="missed"),)), "missed"),
    ],
)
def test_each_condition_has_its_sentence(report: Report, sentence: str) -> None:
    found = violations(report)
    assert len(found) == 1
    assert sentence in found[0]


def test_a_demo_that_reviewed_nothing_has_proved_nothing() -> None:
    nobody = Witnessed(
        filings=0, distinct=0, duplicate_filings=0, filing_requests=0, look_ups=0, responses_dropped=0,
        llm_calls=0, tokens=0,
    )  # fmt: skip
    stopped = replace(GOOD.progress, completed=0, stopped=10)
    found = violations(replace(GOOD, progress=stopped, testimony=nobody))
    for sentence in ("0 of 10 documents", "10 of 10 documents failed", "0 filings", "0 LLM calls"):
        assert any(sentence in one for one in found), sentence


@pytest.mark.parametrize(
    ("faults", "told"), [(0, "once in"), (1, "through 1 fault in"), (2, "2 faults")]
)
def test_the_verdict_counts_the_faults_that_it_names(faults: int, told: str) -> None:
    console = Console(file=io.StringIO(), record=True, width=120)
    show(console, replace(GOOD, faults=(KILL,) * faults), None)
    assert told in console.export_text()


@pytest.mark.parametrize(
    ("fate", "mechanism"),
    [
        (Fate(NOON, 8, outcome="died", reason="signal 9"), Mechanism.CHILD_FAST_PATH),
        (
            Fate(NOON, 8, outcome="expired", reason="its worker is gone; a new one took its name"),
            Mechanism.RETURNING_WORKER,
        ),
        (Fate(NOON, 8, outcome="expired", reason="the owner fell silent"), Mechanism.SWEEP),
        (Fate(NOON, 7), Mechanism.RECONNECTION),
        (Fate(NOON, 8, outcome="failed", reason="no connection"), Mechanism.RETRY),
        (Fate(NOON, 8, outcome="interrupted"), Mechanism.HANDED_BACK),
        (Fate(NOON, 8), Mechanism.UNKNOWN),
    ],
)
def test_the_mechanism_is_read_from_the_attempt_that_was_hit(
    fate: Fate, mechanism: Mechanism
) -> None:
    assert mechanism_of(fate, 7) is mechanism


def test_several_mechanisms_are_named_in_order_of_their_share() -> None:
    assert named([Mechanism.SWEEP, Mechanism.RETURNING_WORKER, Mechanism.SWEEP]) == (
        "sweep and returning worker"
    )


def test_lost_and_changed_results_are_counted_and_new_ones_are_not() -> None:
    before = {("run", "a"): "1", ("run", "b"): "2", ("run", "c"): "3"}
    after = {("run", "a"): "1", ("run", "b"): "other", ("run", "d"): "4"}
    assert differences(before, after) == 2


def test_the_rate_is_that_of_the_last_moments() -> None:
    rate = Rate()
    assert rate.eta(10) is None
    for second in range(60):
        rate.note(float(second), 0 if second < 30 else 2 * (second - 30))
    assert rate.per_second == pytest.approx(2.0)
    assert rate.eta(10) == pytest.approx(5.0)


def test_the_picture_shows_the_verdict_and_needs_no_other_host(tmp_path: Path) -> None:
    picture = tmp_path / "docs" / "demo.svg"
    draw(GOOD, None, picture)
    drawn = picture.read_text()
    assert "make&#160;demo" in drawn or "make demo" in drawn
    assert "Every&#160;document&#160;was&#160;filed&#160;once" in drawn
    assert "url(http" not in drawn.replace('"', "")
