"""Does what the journal says of a run hold together? Asked by people, and after every recovery.

For each run: every completed step has its output and the digests it was recorded with; its input is what
its predecessor left; each step was planned and follows what the plan says it follows; each branch was
claimed with tokens 1, 2, 3, ... of which each ended in exactly one way; a completed run has a result and
nothing left in motion; its effects are settled (``verify_effects``); what is kept outside the journal is what
was put there (``verify_artifacts``); its wallet says at least what was charged (``verify_money``). Reads only;
what is found is told to whoever asks, or filed as an event.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.journal import events, evidence, workers
from models.journal.evidence import Evidence, PlanFact, StepFact
from models.plan import InputKind
from models.states import RunState, StepState
from recovery import verify_artifacts, verify_calls, verify_effects, verify_money
from recovery.findings import Finding

_log = logging.getLogger("onward.verify")

VERIFY_LOCK = 0x5645_5246  #: any fixed number of ours
_PASS_LIMIT = 50  #: runs verified by one pass of `watch`; the rest by the next ones
_LATE = "superseded"  #: the late result of an owner whose attempt had ended otherwise
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What does not hold, and what is told beside: effects behind the results' backs, and what recovery cost."""

    findings: list[Finding]
    left_over: list[str]
    recovery: list[str]  #: what was paid twice


def verify(run_id: str) -> list[Finding]:
    """Everything about a run that does not hold; empty when all does. Raises ``UnknownRun``."""
    return look(run_id).findings


def look(run_id: str) -> Verdict:
    """``verify``, and what people want to know beside. Raises ``UnknownRun``."""
    facts, kept = verify_artifacts.look(evidence.of_run(run_id))
    found = [*judge(facts), *kept, *verify_calls.look(run_id), *verify_money.look(run_id)]
    return Verdict(found, verify_effects.left_over(facts), verify_money.recovery_cost(run_id))


def verify_recovered(*, limit: int = _PASS_LIMIT) -> dict[str, list[Finding]]:
    """Verify finished runs that lost an owner on their way, once each, and file what was found."""
    if not workers.alone(VERIFY_LOCK):
        return {}
    try:
        return {run_id: _file(run_id) for run_id in evidence.recovered_runs(limit=limit)}
    finally:
        workers.release(VERIFY_LOCK)


def _file(run_id: str) -> list[Finding]:
    findings = verify(run_id)
    if findings:
        _log.error("Run %s does not verify: %s", run_id, findings[0], extra={"run_id": run_id})
        told = "; ".join(map(str, findings[:_SHOWN]))
        events.record(run_id, "verification_failed", detail=f"{len(findings)} findings: {told}")
    else:
        events.record(run_id, "run_verified", detail="every step, digest and claim holds")
    return findings


def judge(facts: Evidence) -> list[Finding]:
    """Pure: what one look at a run shows."""
    return [
        *_of_run(facts),
        *_of_digests(facts),
        *_of_plan(facts),
        *_of_joins(facts),
        *_of_claims(facts),
        *verify_effects.of_effects(facts),
    ]


def _of_run(facts: Evidence) -> Iterator[Finding]:
    if facts.input_now != facts.input_digest:
        yield Finding("input_changed", "run", "its input is not the one that was submitted")
    if facts.step_count != len(facts.plan):
        yield Finding(
            "plan_count", "run", f"{facts.step_count} steps were counted, {len(facts.plan)} planned"
        )
    if facts.state != RunState.COMPLETED:
        return
    result = next((step for step in facts.steps if step.step_key == facts.result_key), None)
    if result is None or result.state != StepState.COMPLETED or not result.has_output:
        yield Finding("no_result", "run", f"completed, but step {facts.result_key!r} has no result")
    for branch in facts.live:
        yield Finding(
            "still_moving", branch.step_key, f"the run is completed, and this is {branch.state}"
        )


def _of_digests(facts: Evidence) -> Iterator[Finding]:
    for step in facts.steps:
        if step.has_output and step.output_now != step.output_digest:
            yield Finding(
                "output_changed", step.step_key, f"recorded as {step.output_digest}, is {step.output_now}"
            )  # fmt: skip
        if step.state == StepState.COMPLETED and not step.has_output:
            yield Finding("no_output", step.step_key, "completed without an output")
        if step.state == StepState.COMPLETED and step.input_now != step.input_digest:
            yield Finding(
                "input_changed", step.step_key, f"ran on {step.input_digest}, and its arguments and the "
                f"result of {step.prev_key!r} make {step.input_now}",
            )  # fmt: skip


def _of_plan(facts: Evidence) -> Iterator[Finding]:
    plan = {node.step_key: node for node in facts.plan}
    finished = {step.step_key: step for step in facts.steps}
    for step in facts.steps:
        if step.step_key not in plan:
            yield Finding("not_planned", step.step_key, "finished without being in the plan")
        elif step.state == StepState.COMPLETED:
            yield from _of_predecessor(step, plan, finished)
    if facts.state == RunState.COMPLETED:
        yield from _of_what_never_ran(facts, plan, finished)


def _of_what_never_ran(
    facts: Evidence, plan: dict[str, PlanFact], finished: dict[str, StepFact]
) -> Iterator[Finding]:
    ended = _ended_members(facts.steps, plan)
    for node in facts.plan:
        known = finished.get(node.step_key)
        if any(_is_within(node.branch, member) for member in ended):
            continue  # its group member was given up, and the join was told
        if known is None:
            yield Finding(
                "never_ran", node.step_key, "the run is completed, and nothing says why this did not run"
            )  # fmt: skip
        elif known.state == StepState.CANCELLED:
            yield Finding("never_ran", node.step_key, "cancelled, and the run is completed")


def _of_predecessor(
    step: StepFact, plan: dict[str, PlanFact], finished: dict[str, StepFact]
) -> Iterator[Finding]:
    node = plan[step.step_key]
    if step.prev_key is None:
        if node.input == InputKind.PREVIOUS:
            yield Finding(
                "no_predecessor", step.step_key, "needs a result, and nothing came before it"
            )
        return
    before, led = plan.get(step.prev_key), finished.get(step.prev_key)
    if led is None or led.state != StepState.COMPLETED:
        yield Finding("out_of_order", step.step_key, f"completed before {step.prev_key!r} was")
    follows = before is not None and (
        step.step_key == before.next_key
        or step.step_key in (before.fork or ())
        or node.inserted_by == step.prev_key
    )
    if not follows:
        yield Finding(
            "out_of_order", step.step_key, f"the plan does not let it follow {step.prev_key!r}"
        )


def _ended_members(steps: Sequence[StepFact], plan: dict[str, PlanFact]) -> list[str]:
    """Branches of group members that a tolerated failure ended: what lay ahead there never ran."""
    ended = []
    for step in steps:
        if step.state == StepState.FAILED and step.joins in plan:
            parent = plan[step.joins].branch
            below = step.branch.removeprefix(f"{parent}/").partition("/")[0]
            ended.append(f"{parent}/{below}")
    return ended


def _is_within(branch: str, member: str) -> bool:
    return branch == member or branch.startswith(f"{member}/")


def _of_joins(facts: Evidence) -> Iterator[Finding]:
    expected: dict[str, set[int]] = defaultdict(set)
    reported: dict[str, Counter[int]] = defaultdict(Counter)
    for node in facts.plan:
        if node.joins is not None and node.join_index is not None:
            expected[node.joins].add(node.join_index)
    for step in facts.steps:
        if step.joins is not None and step.join_index is not None:
            reported[step.joins][step.join_index] += 1
    for step in facts.steps:
        members = expected.get(step.step_key)
        if step.state != StepState.COMPLETED or members is None:
            continue
        found = reported[step.step_key]
        if set(found) != members or any(count > 1 for count in found.values()):
            yield Finding(
                "join_incomplete", step.step_key, f"joined {sum(found.values())} results of "
                f"{len(members)} members",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Claim:
    token: int
    step_key: str
    attempt: int
    end: str


def _of_claims(facts: Evidence) -> Iterator[Finding]:
    branches: dict[str, list[_Claim]] = defaultdict(list)
    reached: Counter[str] = Counter()
    for step in facts.steps:
        if step.state == StepState.COMPLETED:
            claim = _Claim(step.token, step.step_key, step.attempt, step.state)
            branches[step.branch].append(claim)
    for tried in facts.attempts:
        claim = _Claim(tried.token, tried.step_key, tried.attempt, tried.outcome)
        branches[tried.branch].append(claim)
    for branch in facts.live:
        reached[branch.branch] = branch.token
        if branch.state == StepState.RUNNING:
            claim = _Claim(branch.token, branch.step_key, branch.attempt, branch.state)
            branches[branch.branch].append(claim)
    for name in sorted({*branches, *reached}):
        claims = sorted(branches[name], key=lambda claim: claim.token)
        yield from _of_tokens(name, claims, reached[name])
        yield from _of_attempts(name, claims)


def _of_tokens(branch: str, claims: Sequence[_Claim], reached: int) -> Iterator[Finding]:
    """Each claim raised the branch's token by one and ended in exactly one way."""
    ends: dict[int, list[_Claim]] = defaultdict(list)
    for claim in claims:
        ends[claim.token].append(claim)
    highest = max([reached, *ends])
    missing = [token for token in range(1, highest + 1) if token not in ends]
    if missing or any(token < 1 for token in ends):
        yield Finding(
            "token_gap", f"branch {branch}", f"{highest} claims were made, and nothing says how "
            f"{', '.join(map(str, missing[:_SHOWN]))} ended",
        )  # fmt: skip
    for token, found in ends.items():
        whose = {(claim.step_key, claim.attempt) for claim in found}
        ways = [claim.end for claim in found if claim.end != _LATE]
        late = len(found) - len(ways)
        if len(whose) > 1 or len(ways) != 1 or (late and ways[0] == StepState.COMPLETED):
            told = ", ".join(f"{claim.step_key} {claim.end}" for claim in found)
            yield Finding(
                "token_shared", f"branch {branch}", f"token {token} stands for more than one end, or none: {told}"
            )  # fmt: skip


def _of_attempts(branch: str, claims: Sequence[_Claim]) -> Iterator[Finding]:
    """The branch went from step to step without coming back, and attempts count from 1."""
    counted: dict[str, list[int]] = {}
    last = ""
    for claim in (claim for claim in claims if claim.end != _LATE):
        if claim.step_key != last and claim.step_key in counted:
            yield Finding(
                "out_of_order", claim.step_key, f"claimed again on branch {branch} after {last!r} was"
            )  # fmt: skip
        last = claim.step_key
        counted.setdefault(last, []).append(claim.attempt)
    for step_key, attempts in counted.items():
        if attempts != list(range(1, len(attempts) + 1)):
            yield Finding(
                "attempts_miscounted", step_key, f"its claims are numbered {attempts[:20]}"
            )
