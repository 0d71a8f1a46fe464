"""What a stop signal means for its step, and that no ordinary handler catches one."""

import pytest

from models.states import BlockReason
from tasks.errors import (
    AttemptLost,
    EffectBlocked,
    EffectPostponed,
    EffectUnknown,
    EffectWithheld,
    Stop,
)
from tasks.options import RetryPolicy
from tasks.outcomes import Blocked, Displaced, Interrupted, Outcome, Postponed, judge

CASES: list[tuple[Stop, Outcome]] = [
    (EffectUnknown("why"), Interrupted("effect_unknown", "why", crashed=False, decide_now=True)),
    (EffectWithheld("why"), Interrupted("cancelled", "why", crashed=False, decide_now=True)),
    (
        EffectBlocked("why", reason=BlockReason.IDEMPOTENCY_CONFLICT),
        Blocked("idempotency_conflict", "why", BlockReason.IDEMPOTENCY_CONFLICT),
    ),
    (EffectPostponed("why", delay=40.0), Postponed("throttled", "why", 40.0)),
    (AttemptLost("why"), Displaced("why")),
]


@pytest.mark.parametrize(("stop", "outcome"), CASES, ids=[type(case[0]).__name__ for case in CASES])
def test_what_a_stop_means_whatever_the_retry_policy_says(stop: Stop, outcome: Outcome) -> None:
    for retry in (RetryPolicy(), RetryPolicy(max_retries=9)):
        assert judge(stop, retry=retry, failures=0, seed="s") == outcome


@pytest.mark.parametrize("stop", [case[0] for case in CASES], ids=lambda stop: type(stop).__name__)
def test_an_ordinary_handler_lets_a_stop_through(stop: Stop) -> None:
    def careless() -> str:
        try:
            raise stop
        except Exception:
            return "swallowed"

    with pytest.raises(type(stop)):
        careless()
