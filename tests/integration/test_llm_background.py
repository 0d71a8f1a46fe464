"""Answers that a provider makes in the background: paid for once, looked at as often as it takes."""

from collections.abc import Callable, Iterator

import pytest
from pydantic import BaseModel

from models.journal import calls as journal_calls
from models.journal import endpoints, wallets
from models.journal.values import Claimed
from models.settings import settings
from tasks import Context
from tasks.errors import AnswerIncomplete, CallPostponed
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.liar import answer, liar
from tests.support.models import Answer, ModelService
from tests.support.recording import attempt, calls, configured, next_attempt

pytestmark = pytest.mark.integration


class Verdict(BaseModel):
    rating: str
    score: int


GOOD = Answer(value={"rating": "good", "score": 3})


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_LLM_BASE_URL=models.url, ONWARD_LLM_MODEL="gpt-x"):
        yield at_work()


def verdicts(journal: Journal) -> list[tuple[str, str | None]]:
    return [(state, verdict) for _, _, state, verdict in calls(journal)]


def to_its_end(
    journal: Journal, holder: Claimed, body: Callable[[Context], object], *, looks: int = 12
) -> Claimed:
    """Attempt after attempt, as the step comes back; the one that was not sent back again."""
    for _ in range(looks):
        with attempt(holder) as ctx:
            try:
                body(ctx)
            except CallPostponed:
                holder = again(journal, holder)
                continue
        return holder
    pytest.fail("it never came")


def test_a_background_answer_is_fetched_and_asked_for_once(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("think long", Answer(value={"rating": "good", "score": 3}, polls=2))
    with attempt(claimed) as ctx, pytest.raises(CallPostponed) as parked:
        ctx.llm.background(Verdict, "think long", poll_every=7.0)
    assert parked.value.delay == 7.0
    holder = claimed
    for _ in range(4):
        holder = again(journal, holder)
        with attempt(holder) as ctx:
            try:
                assert ctx.llm.background(Verdict, "think long", poll_every=7.0).score == 3
            except CallPostponed:
                continue
            break
    else:
        pytest.fail("it never came")
    with next_attempt(journal, holder) as ctx:
        assert ctx.llm.background(Verdict, "think long", poll_every=7.0).score == 3
    assert models.count("think long") == 1
    assert [verdict for _, verdict in verdicts(journal)] == ["accepted", "accepted"]


def test_a_forgotten_background_answer_is_begun_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("think long", Answer(value={"rating": "good", "score": 3}, forgotten=True), GOOD)
    holder = claimed
    for _ in range(5):
        with attempt(holder) as ctx:
            try:
                assert ctx.llm.background(Verdict, "think long").score == 3
            except CallPostponed:
                holder = again(journal, holder)
                continue
            break
    else:
        pytest.fail("it never came")
    assert models.count("think long") == 2


def think_long(ctx: Context) -> None:
    ctx.llm.background(Verdict, "think long", max_asks=2)


def test_a_background_answer_of_another_model_is_not_taken(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("think long", Answer(value={"rating": "good", "score": 3}, model="gpt-y"))
    with pytest.raises(AnswerIncomplete) as caught:
        to_its_end(journal, claimed, think_long)
    assert caught.value.error_type == "answer_other_model"
    assert models.count("think long") == 2
    assert verdicts(journal) == [("pending", None), ("other_model", "rejected")] * 2
    assert wallets.standing(claimed.run_id).held_tokens == 0


def test_after_a_persons_retry_a_background_answer_is_begun_anew(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    """Neither answers of another model nor forgotten ones count any more."""
    other = Answer(value={"rating": "good", "score": 3}, model="gpt-y")
    models.script("think long", other, Answer(value={}, forgotten=True), GOOD)
    holder = claimed
    for _ in range(8):
        with attempt(holder) as ctx:
            try:
                think_long(ctx)
            except AnswerIncomplete:
                break
            except CallPostponed:
                pass
        holder = again(journal, holder)
    assert models.count("think long") == 2
    after = again(journal, holder)
    journal_calls.pardon(claimed.run_id, claimed.step_key, actor="ada@example.org", reason="try")
    ended = to_its_end(journal, again(journal, after), think_long)
    assert models.count("think long") == 3
    with next_attempt(journal, ended) as ctx:
        think_long(ctx)
    assert models.count("think long") == 3


def test_a_provider_that_is_away_while_it_makes_an_answer_is_waited_for(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    """The answer is paid for: neither a crash of the provider nor its errors make it asked for again."""
    models.script("think long", GOOD)
    with attempt(claimed) as ctx, pytest.raises(CallPostponed):
        think_long(ctx)
    models.kill()
    holder = again(journal, claimed)
    with attempt(holder) as ctx, pytest.raises(CallPostponed, match="unreachable"):
        think_long(ctx)
    models.start()
    endpoints.clear(models.url)
    to_its_end(journal, again(journal, holder), think_long)
    assert models.count("think long") == 1


def test_an_error_at_a_look_sends_the_step_back_and_costs_nothing(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = {"id": "r1", "object": "response", "model": "gpt-x", "status": "queued", "output": []}
    said = {"type": "output_text", "text": '{"rating": "good", "score": 3}', "annotations": []}
    whole = {"type": "message", "id": "m1", "role": "assistant", "content": [said]}
    done = {**queued, "status": "completed", "output": [whole]}
    with liar() as server:
        monkeypatch.setenv("ONWARD_LLM_BASE_URL", server.url)
        settings.cache_clear()
        server.says(
            answer(queued), answer({"error": {"message": "broken"}}, status=500), answer(done)
        )
        with attempt(claimed) as ctx, pytest.raises(CallPostponed):
            think_long(ctx)
        holder = again(journal, claimed)
        with attempt(holder) as ctx, pytest.raises(CallPostponed, match="status 500"):
            think_long(ctx)
        assert endpoints.standing(server.url).strikes == 1
        to_its_end(journal, again(journal, holder), think_long)
        assert endpoints.standing(server.url).since is None  # it has answered
        methods = [one.split(b" ")[0] for one in server.asked]
    assert methods == [b"POST", b"GET", b"GET"]
