"""What becomes of requests that were not answered, or not as they should be: of the step and of its money."""

from collections.abc import Iterator
from decimal import Decimal

import httpx2
import pytest
from openai import OpenAI

from models.journal import endpoints, wallets
from models.journal.call_values import Place, Reservation
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import Context
from tasks.errors import AnswerIncomplete, AttemptLost, CallPostponed, EffectBlocked, final_cause
from tasks.recorder import CallOptions, asking
from tasks.recorder.declared import declare_endpoint
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.models import Answer, ModelService
from tests.support.recording import (
    attempt,
    calls,
    chat,
    configured,
    next_attempt,
    recorder_of,
    said,
)


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url, ONWARD_PRICES='{"gpt-x": {"call": 0.3}}'):
        yield at_work()


def ask(ctx: Context, models: ModelService, text: str, **fields: object) -> httpx2.Response:
    with ctx.httpx_client() as client:
        response: httpx2.Response = client.post(
            f"{models.url}/chat/completions", json=chat(text, **fields)
        )
        return response


def owed(claimed: Claimed) -> tuple[object, ...]:
    """(spent, held, part of it that recovery cost)."""
    standing = wallets.standing(claimed.run_id)
    return standing.spent_cost, standing.held_cost, standing.recovery_cost


@pytest.mark.parametrize("dated", [False, True])
def test_a_limited_endpoint_is_left_alone_by_everybody_and_costs_nothing(
    journal: Journal, models: ModelService, claimed: Claimed, dated: bool
) -> None:
    models.fault("busy", Answer(status=429, retry_after=120, dated=dated))
    with attempt(claimed) as ctx, pytest.raises(CallPostponed) as stopped:
        ask(ctx, models, "busy")
    assert 119 <= stopped.value.delay <= 120 + 30 + 2
    assert "429" in str(stopped.value)
    assert owed(claimed) == (0, 0, 0)
    assert calls(journal) == []

    with next_attempt(journal, claimed) as ctx, pytest.raises(CallPostponed) as stopped:
        ask(ctx, models, "another question")
    assert 60 <= stopped.value.delay <= 90 + 30 + 2
    assert models.count("another question") == 0
    assert endpoints.standing(models.url).wait > 60


def test_an_endpoint_that_fails_is_asked_again_later_and_later(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.fault("down", *[Answer(status=500)] * 3)
    delays, holder = [], claimed
    for _ in range(3):
        journal.look.execute("UPDATE endpoint SET not_before = NULL")
        journal.look.commit()
        with attempt(holder) as ctx, pytest.raises(CallPostponed) as stopped:
            ask(ctx, models, "down")
        delays.append(stopped.value.delay)
        holder = again(journal, holder)
    assert 0.9 <= delays[0] <= 1.3
    assert 1.9 <= delays[1] <= 2.6
    assert 3.9 <= delays[2] <= 5.1
    assert owed(claimed) == (Decimal("0.9"), 0, Decimal("0.9"))  # each may have been worked on

    journal.look.execute("UPDATE endpoint SET not_before = NULL")
    journal.look.commit()
    with attempt(holder) as ctx:
        ask(ctx, models, "down")
    assert endpoints.standing(models.url).strikes == 0


def test_an_endpoint_that_is_not_there_costs_nothing_and_its_silence_has_a_reason(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    declare_endpoint("http://127.0.0.1:9/v1")
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        with pytest.raises(CallPostponed, match=r"unreachable: ConnectError") as stopped:
            client.post("http://127.0.0.1:9/v1/chat/completions", json=chat("hello"))
        assert recorder_of(ctx).ledger.close() is stopped.value
    assert owed(claimed) == (0, 0, 0)
    assert "unreachable" in (endpoints.standing("http://127.0.0.1:9/v1").reason or "")


@pytest.mark.parametrize("how", ["lost", "slow"])
def test_a_request_that_may_have_been_worked_on_is_paid_for(
    journal: Journal, models: ModelService, claimed: Claimed, how: str
) -> None:
    models.fault("gone", Answer(cut="after") if how == "lost" else Answer(delay=2.0))
    with (
        attempt(claimed) as ctx,
        ctx.httpx_client(timeout=0.3) as client,
        pytest.raises(CallPostponed, match="unreachable"),
    ):
        client.post(f"{models.url}/chat/completions", json=chat("gone"))
    models.wait_idle()
    assert owed(claimed) == (Decimal("0.3"), 0, Decimal("0.3"))
    assert calls(journal) == []


def test_a_withdrawn_model_stops_the_run_and_is_named(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.fault("old", Answer(status=404, code="model_not_found"))
    with attempt(claimed) as ctx, pytest.raises(EffectBlocked, match="model 'gpt-x'") as stopped:
        ask(ctx, models, "old")
    assert stopped.value.reason is BlockReason.LLM_UNAVAILABLE
    assert owed(claimed) == (0, 0, 0)


def test_credentials_that_are_not_accepted_stop_the_run(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.fault("who", Answer(status=401))
    with attempt(claimed) as ctx, pytest.raises(EffectBlocked, match="credentials") as stopped:
        ask(ctx, models, "who")
    assert stopped.value.reason is BlockReason.LLM_UNAVAILABLE


def test_a_request_at_fault_is_the_bodys_and_is_refused_again_after_a_crash(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.fault("wrong", Answer(status=400))
    with attempt(claimed) as ctx:
        assert ask(ctx, models, "wrong").status_code == 400
        first = said(ask(ctx, models, "right"))
    with next_attempt(journal, claimed) as ctx:
        assert ask(ctx, models, "wrong").status_code == 400
        assert said(ask(ctx, models, "right")) == first
    assert (models.count("wrong"), models.count("right")) == (1, 1)
    assert owed(claimed)[:2] == (Decimal("0.3"), 0)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Answer(text="half", finish="length"), "length"),
        (Answer(text=""), "empty"),
        (Answer(refusal="I will not"), "refused"),
        (Answer(malformed=True), "malformed"),
        (Answer(cut="half"), "cut"),
    ],
)
def test_an_answer_that_is_not_whole_is_asked_for_again_up_to_the_limit_over_all_attempts(
    journal: Journal, models: ModelService, claimed: Claimed, answer: Answer, state: str
) -> None:
    models.script("half", *[answer] * 5)
    with attempt(claimed) as ctx, pytest.raises(AnswerIncomplete) as failed:
        ask(ctx, models, "half")
    assert (failed.value.error_type, failed.value.state) == (f"answer_{state}", state)
    with next_attempt(journal, claimed) as ctx, pytest.raises(AnswerIncomplete):
        ask(ctx, models, "half")
    models.wait_idle()
    assert models.count("half") == 3
    assert calls(journal) == [("", place, state, "rejected") for place in range(3)]
    assert owed(claimed)[:2] == (Decimal("0.9"), 0)


def test_the_limit_counts_what_was_rejected_before_a_crash(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("half", *[Answer(text="half", finish="length")] * 5)

    class Crash(BaseException):
        """The process ends between two asks."""

    def crash(_: bytes) -> None:
        if len(calls(journal)) == 1:
            raise Crash

    with attempt(claimed) as ctx, asking(CallOptions(on_chunk=crash)), pytest.raises(Crash):
        ask(ctx, models, "half")
    with next_attempt(journal, claimed) as ctx, pytest.raises(AnswerIncomplete):
        ask(ctx, models, "half")
    assert [state for _, _, state, _ in calls(journal)] == ["length"] * 2
    assert (
        models.count("half") == 3
    )  # one of them was lost with its process, and counts as asked again
    assert owed(claimed) == (Decimal("0.9"), 0, Decimal("0.3"))


def test_a_client_that_tries_again_by_itself_does_not_get_a_new_limit(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:

    models.script("half", *[Answer(text="half", finish="length")] * 20)
    with attempt(claimed) as ctx:
        sdk = OpenAI(
            base_url=models.url, api_key="k", http_client=ctx.httpx_client(), max_retries=2
        )
        with sdk, pytest.raises(Exception) as failed:  # noqa: PT011 - the SDK's own
            sdk.chat.completions.create(**chat("half"))
    assert isinstance(final_cause(failed.value), AnswerIncomplete)
    assert models.count("half") == 3


def test_length_passes_where_it_is_accepted_and_another_model_never(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("short", Answer(text="part", finish="length"))
    models.script("other", *[Answer(model="gpt-y")] * 5)
    with attempt(claimed) as ctx:
        with ctx.httpx_client(accept_length=True) as client:
            answer = client.post(f"{models.url}/chat/completions", json=chat("short"))
            assert said(answer) == "part"
        with ctx.httpx_client(pin="gpt-x", max_asks=2) as client, pytest.raises(AnswerIncomplete):
            client.post(f"{models.url}/chat/completions", json=chat("other"))
    assert calls(journal) == [
        ("", 0, "length", "accepted"),
        ("", 1, "other_model", "rejected"),
        ("", 2, "other_model", "rejected"),
    ]


def test_an_answer_that_came_after_the_step_was_taken_is_not_recorded_and_is_paid_for(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:

        def take(_: bytes) -> None:
            journal.lose()

        with asking(CallOptions(on_chunk=take)), pytest.raises(AttemptLost):
            ask(ctx, models, "late")
    assert calls(journal) == []
    assert owed(claimed) == (Decimal("0.3"), 0, Decimal("0.3"))


def test_what_an_earlier_attempt_had_set_aside_is_charged_before_anything_new(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:

    lost = Reservation(place=Place(0, "", 0), send=1, tokens=10, cost=Decimal("0.3"), model="gpt-x")
    wallets.reserve(claimed, lost)
    assert owed(claimed) == (0, Decimal("0.3"), 0)
    with next_attempt(journal, claimed) as ctx:
        ask(ctx, models, "again")
    assert owed(claimed) == (Decimal("0.6"), 0, Decimal("0.3"))


def test_nothing_leaves_outside_the_trust_window(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:

    def distrust() -> None:
        raise LeaseLost("it was taken")

    with attempt(claimed, trust=distrust) as ctx, pytest.raises(AttemptLost):
        ask(ctx, models, "late")
    assert models.calls() == []
    assert owed(claimed) == (0, 0, 0)
