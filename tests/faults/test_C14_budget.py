"""C14: a run that crashes again and again spends one budget, not a fresh one each time."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path

import pytest

from models import database
from models.journal import history, metrics, submitting, wallets
from models.journal.call_values import Limits
from models.settings import settings
from tests.agents.budgeted import MOST
from tests.support.invariants import check_invariants
from tests.support.models import Answer, models_service
from tests.support.spending import PRICE, Spending, covered, of, spending
from tests.support.waiting import wait_until
from tests.support.world import World

BUDGET = {"cost": "1.00", "tokens": 10_000, "attempts": 5}
NOTHING, DOLLAR = Decimal(0), Decimal("1.00")


@pytest.fixture(scope="module")
def paying(
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Spending]:
    directory: Path = tmp_path_factory.mktemp("paying")
    with models_service(directory) as models, spending(make_world, models, directory) as paying:
        yield paying


def extra(what: str) -> float:
    """What recovery cost, as Prometheus is told."""
    name = f"onward_recovery_extra_{what}_total"
    (metric,) = (one for one in metrics.METRICS if one.name == name)
    ((_, value),) = metrics.read(metric)
    return value


def crash_until_refused(paying: Spending, run_id: str) -> int:
    """Die with each answer in memory, resumed each time, until a call is refused; how often it died."""
    for deaths in range(1, 10):
        paying.wait_blocked(run_id, "poison_step")
        paying.resume_until_blocked(run_id)
        if history.get_run(run_id).reason == "budget_exceeded":
            return deaths
    raise AssertionError("nothing ever refused a call")


def test_C14_repeated_crashes_keep_the_cost_budget(paying: Spending) -> None:
    """The founding scenario, with the figures of C14."""
    models, text = paying.models, "crash each time"
    before = extra("tokens"), extra("cost_dollars")
    tokens = paying.script(text)
    paying.die("L2", 4)
    run_id = paying.world.submit("spender", {"text": text}, budget=BUDGET).run_id

    assert crash_until_refused(paying, run_id) == 3
    assert models.count(text) == 3
    assert models.billed(text).cost == 3 * PRICE
    standing = of(run_id)
    assert (standing.spent_cost, standing.held_cost) == (Decimal("0.90"), NOTHING)
    assert (standing.spent_calls, standing.spent_tokens) == (3, 3 * tokens)
    assert standing.left_cost == Decimal("0.10")
    said = paying.wait_blocked(run_id, "budget_exceeded")
    for part in ("may take 0.30 USD", "0.10 USD left", f"onward runs budget {run_id} --cost 1.20"):
        assert part in said

    for _ in range(2):  # resuming alone changes nothing, however often, and uses up no attempt
        paying.resume_until_blocked(run_id)
        paying.wait_blocked(run_id, "budget_exceeded")
    assert (models.count(text), of(run_id).spent_cost) == (3, Decimal("0.90"))

    assert extra("tokens") - before[0] == 3 * tokens
    assert round(extra("cost_dollars") - before[1], 9) == 0.9
    go_on_with_more(paying, run_id)
    assert (models.count(text), models.billed(text).cost) == (4, 4 * PRICE)
    after = of(run_id)
    assert (after.spent_cost, after.held_cost) == (4 * PRICE, NOTHING)
    assert (after.recovery_tokens, after.recovery_cost) == (3 * tokens, 3 * PRICE)
    assert after.recovery_seconds > 0
    check_invariants(settings().database_url, run_id)


def go_on_with_more(paying: Spending, run_id: str) -> None:
    """Somebody raises the budget, by name, and resumes: it goes on from the same step."""
    (paying.kills / "L2").unlink()
    wallets.raise_limits(run_id, by="ada", reason="the contract is worth it", cost=Decimal("1.20"))
    assert paying.world.state(run_id) == "blocked"  # raising is not resuming
    paying.resume(run_id)
    paying.world.wait_run(run_id)
    assert paying.world.value(run_id, "think") == ["well"]
    (raised,) = [one for one in history.timeline(run_id) if one.kind == "budget_raised"]
    assert raised.actor == "ada"
    assert "the contract is worth it" in raised.detail


def test_C14_an_answer_that_is_recorded_is_paid_once(paying: Spending) -> None:
    """The result of the body is lost each time (P4), and its answer is not."""
    paying.script("lost result")
    paying.die("P4", 3)
    run_id = paying.world.submit("spender", {"text": "lost result"}, budget=BUDGET).run_id
    for _ in range(3):
        paying.wait_blocked(run_id, "poison_step")
        paying.resume(run_id)
    paying.world.wait_run(run_id)
    assert paying.models.count("lost result") == 1
    assert of(run_id).spent_cost == PRICE
    assert of(run_id).recovery_cost == 0


def test_C14_a_death_between_reservation_and_request_is_charged_too(paying: Spending) -> None:
    """Nobody can know that it never left: spent is then more than was billed, and never less."""
    paying.script("never left")
    paying.die("L1", 1)
    run_id = paying.world.submit("spender", {"text": "never left"}, budget=BUDGET).run_id
    paying.wait_blocked(run_id, "poison_step")
    paying.resume(run_id)
    paying.world.wait_run(run_id)
    assert paying.models.billed("never left").cost == PRICE
    assert of(run_id).spent_cost == 2 * PRICE
    assert of(run_id).recovery_cost == PRICE


def test_ten_crashes_in_a_row_are_never_cheaper_than_what_was_billed(paying: Spending) -> None:
    models = paying.models
    paying.script("ten crashes")
    paying.die("L2", 10)
    run_id = paying.world.submit("spender", {"text": "ten crashes"}, budget={"cost": 5}).run_id
    for _ in range(10):
        wait_until(lambda: never_below(paying, run_id), timeout=30, what="a crash")
        paying.resume(run_id)
    wait_until(
        lambda: never_below(paying, run_id, "completed"), timeout=30, what="the run is completed"
    )
    billed = models.billed("ten crashes")
    assert billed.calls == 11
    assert (of(run_id).spent_cost, of(run_id).held_cost) == (billed.cost, NOTHING)
    assert of(run_id).spent_tokens == billed.tokens
    assert of(run_id).recovery_cost == 10 * PRICE


def never_below(paying: Spending, run_id: str, state: str = "blocked") -> bool:
    """Looked at all the time: what was billed first, then what the wallet says."""
    billed = paying.models.billed("ten crashes")
    standing = of(run_id)
    assert covered(standing) >= billed.cost
    assert standing.spent_tokens + standing.held_tokens >= billed.tokens
    return paying.world.state(run_id) == state


def test_C14_a_step_is_out_of_attempts_before_its_body(paying: Spending) -> None:
    paying.script("two tries")
    paying.die("L2", 3)
    given = {"text": "two tries"}
    run_id = paying.world.submit("spender", given, budget={"attempts": 2}).run_id
    for _ in range(2):
        paying.wait_blocked(run_id, "poison_step")
        paying.resume_until_blocked(run_id)
    said = paying.wait_blocked(run_id, "budget_exceeded")
    assert "step 'think' was attempted 2 times" in said
    assert paying.world.bodies(run_id, "think") == 2
    (paying.kills / "L2").unlink()
    wallets.raise_limits(run_id, by="ada", reason="once more", attempts=3)
    paying.resume(run_id)
    paying.world.wait_run(run_id)


def test_C14_a_run_is_out_of_time_before_its_next_body(paying: Spending) -> None:
    paying.script("no time")
    paying.die("L2", 1)
    run_id = paying.world.submit("spender", {"text": "no time"}, budget={"seconds": 60}).run_id
    paying.wait_blocked(run_id, "poison_step")
    database.fetch(
        "UPDATE run SET started_at = started_at - interval '1 minute' WHERE run_id = %(id)s",
        {"id": run_id},
    )  # a minute later
    paying.resume_until_blocked(run_id)
    assert "may take 60 s" in paying.wait_blocked(run_id, "budget_exceeded")
    assert paying.world.bodies(run_id, "think") == 1
    wallets.raise_limits(run_id, by="ada", reason="it may take its time", seconds=3600)
    paying.resume(run_id)
    paying.world.wait_run(run_id)


def test_C14_an_unknown_price_is_no_price(paying: Spending) -> None:
    """A step of a run with a cost limit asks a model that is not in the table: nothing is sent."""
    paying.models.script("who knows", "well")
    run_id = paying.world.submit(
        "spender", {"text": "who knows", "model": "gpt-new"}, budget={"cost": "1.00"}
    ).run_id
    said = paying.wait_blocked(run_id, "budget_exceeded")
    assert "the price of model 'gpt-new' is not known" in said
    assert "ONWARD_PRICES" in said
    assert paying.models.count("who knows") == 0


def test_runs_of_one_batch_share_what_is_left(paying: Spending) -> None:
    submitting.create_batch("shared", "shared", budget=Limits(cost=DOLLAR))
    paying.script("shared")
    run_ids = [
        paying.world.submit("spender", {"text": f"shared {n}"}, batch_id="shared").run_id
        for n in range(4)
    ]
    ended = [paying.world.wait_run(run_id, "completed", "blocked") for run_id in run_ids]
    assert sorted(ended) == ["blocked", "completed", "completed", "completed"]
    assert of("shared").spent_cost == 3 * PRICE
    assert paying.models.count("shared ") == 3


def test_C14_a_call_under_way_has_exactly_its_price_reserved(paying: Spending) -> None:
    """Its worker is killed while the model works: the money stays set aside, and is charged once, as it was billed."""
    models, text = paying.models, "under way"
    tokens = paying.script(text)
    models.script(f"{text} #0", held(paying, text, gate="slow"))
    run_id = paying.world.submit("spender", {"text": text}, budget=BUDGET).run_id
    models.wait_held("slow")
    standing = of(run_id)
    assert (standing.held_cost, standing.held_tokens) == (Decimal("0.30"), tokens)
    assert (standing.spent_cost, standing.left_cost) == (NOTHING, Decimal("0.70"))

    os.kill(paying.world.holder(run_id), signal.SIGKILL)
    paying.wait_blocked(run_id, "poison_step")
    models.release("slow")
    models.wait_idle()
    assert models.billed(text).cost == PRICE == covered(of(run_id))
    paying.script(f"{text} #0")
    paying.resume(run_id)
    paying.world.wait_run(run_id)
    assert (of(run_id).spent_cost, of(run_id).held_cost) == (2 * PRICE, NOTHING)
    assert models.billed(text).cost == 2 * PRICE
    assert of(run_id).recovery_cost == PRICE


def test_C14_a_raise_while_a_call_is_under_way_takes_nothing_from_it(paying: Spending) -> None:
    models, text = paying.models, "raised meanwhile"
    models.script(f"{text} #0", held(paying, text, gate="raise"))
    given = {"text": text, "times": 2}
    run_id = paying.world.submit("spender", given, budget={"cost": "0.30"}).run_id
    models.wait_held("raise")
    raised = wallets.raise_limits(run_id, by="ada", reason="in time", cost=Decimal("0.60"))
    assert (raised.held_cost, raised.left_cost) == (PRICE, PRICE)
    models.release("raise")
    paying.world.wait_run(run_id)
    assert (of(run_id).spent_cost, of(run_id).left_cost) == (2 * PRICE, NOTHING)


def held(paying: Spending, text: str, *, gate: str) -> Answer:
    """An answer that takes what is reserved for it, and comes once its gate is opened."""
    tokens = paying.script(text)
    return Answer(text="well", tokens=(tokens - MOST, MOST), hold=gate)
