"""The promises of a run (I2 to I8) as the journal's rows show them afterwards."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import psycopg
from psycopg.rows import dict_row

#: Attempts that ended with their owner: each is one takeover, and has one event.
TAKEOVERS = ("expired", "died")
FINAL = ("completed", "failed", "cancelled", "blocked", "compensated")


def check_invariants(
    database_url: str, run_id: str, *, before: Mapping[str, tuple[str, str]] | None = None
) -> None:
    """Check a run that has come to rest. ``before``: (output, digest) by step, taken earlier."""
    url = database_url.replace("+psycopg", "", 1)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as link:

        def rows(statement: str) -> list[dict[str, object]]:
            return link.execute(statement.encode(), {"run_id": run_id}).fetchall()

        run = rows("SELECT * FROM run WHERE run_id = %(run_id)s")[0]
        steps = rows("SELECT * FROM step WHERE run_id = %(run_id)s")
        attempts = rows("SELECT * FROM attempt WHERE run_id = %(run_id)s")
        live = rows("SELECT branch, step_key, state, token FROM live WHERE run_id = %(run_id)s")
        plan = rows("SELECT * FROM plan WHERE run_id = %(run_id)s")
        events = rows("SELECT * FROM event WHERE run_id = %(run_id)s")
    _results_stand(steps, before or {})
    _keys_stand(steps, plan)
    _attempts_add_up(steps, attempts)
    _nothing_is_left_running(run, live)
    _tokens_rise_by_one(steps, attempts, live)
    _takeovers_are_told(attempts, events)
    _rest_has_a_reason(run)


def _results_stand(steps: list[dict[str, object]], before: Mapping[str, tuple[str, str]]) -> None:
    """I2: a completed step has a result, its digest fits, and neither ever changes."""
    now = {}
    for step in steps:
        if step["state"] == "completed":
            text = str(step["output"])
            digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
            assert step["output_digest"] == digest, f"I2: {step['step_key']} has another digest"
            now[str(step["step_key"])] = (text, digest)
    for key, result in before.items():
        assert now.get(key) == result, f"I2: the result of {key} changed or is gone"


def _keys_stand(steps: list[dict[str, object]], plan: list[dict[str, object]]) -> None:
    """I3: what is finished was planned, each step once."""
    planned = {step["step_key"] for step in plan}
    finished = Counter(step["step_key"] for step in steps)
    assert set(finished) <= planned, f"I3: finished but never planned: {set(finished) - planned}"
    assert not finished or max(finished.values()) == 1, f"I3: finished twice: {finished}"


def _attempts_add_up(steps: list[dict[str, object]], attempts: list[dict[str, object]]) -> None:
    """I4: a step's attempt is one more than those that ended otherwise; none was uncounted."""
    ended = Counter(
        step_key for step_key, _ in {(one["step_key"], one["token"]) for one in attempts}
    )
    for step in steps:
        if step["state"] == "completed":
            expected = ended[step["step_key"]] + 1
            assert step["attempt"] == expected, (
                f"I4: {step['step_key']} has attempt {step['attempt']}, expected {expected}"
            )


def _nothing_is_left_running(run: dict[str, object], live: list[dict[str, object]]) -> None:
    """I5: no step of a run at rest is running; a finished run has nothing in motion at all."""
    stale = [row["step_key"] for row in live if row["state"] == "running"]
    assert not stale, f"I5: still running: {stale}"
    if run["state"] in ("completed", "cancelled", "compensated"):
        assert not live, f"I5: a finished run has branches: {[row['step_key'] for row in live]}"


def _tokens_rise_by_one(
    steps: list[dict[str, object]], attempts: list[dict[str, object]], live: list[dict[str, object]]
) -> None:
    """I6: the tokens of each branch are 1, 2, 3 ... without a gap, and none belongs to two attempts."""
    used: dict[object, set[tuple[int, object]]] = {}
    for one in [*steps, *attempts]:
        if one["state" if "state" in one else "outcome"] != "cancelled":
            token = int(str(one["token"]))
            used.setdefault(one["branch"], set()).add((token, one["step_key"]))
    for branch, pairs in used.items():
        tokens = sorted(token for token, _ in pairs)
        assert tokens == list(range(1, len(tokens) + 1)), f"I6: branch {branch}: {sorted(pairs)}"
    for row in live:
        last = max((token for token, _ in used.get(row["branch"], ())), default=0)
        assert row["token"] == last, f"I6: {row['step_key']} has token {row['token']}, not {last}"


def _takeovers_are_told(attempts: list[dict[str, object]], events: list[dict[str, object]]) -> None:
    """I6, I7: each takeover has one event, and there is no event without its attempt."""
    told = Counter(
        (event["step_key"], event["token"], str(event["kind"]).removeprefix("lease_"))
        for event in events
        if str(event["kind"]).startswith("lease_")
    )
    taken = Counter(
        (one["step_key"], one["token"], one["outcome"])
        for one in attempts
        if one["outcome"] in TAKEOVERS
    )
    assert told == taken, f"I6: takeovers {dict(taken)} are told as {dict(told)}"


def _rest_has_a_reason(run: dict[str, object]) -> None:
    """I8: a run that rests without being done says why."""
    assert run["state"] in FINAL, f"I8: the run is {run['state']}, not at rest"
    if run["state"] in ("failed", "blocked"):
        assert run["reason"], "I8: no reason"
        assert run["detail"], "I8: no detail"
