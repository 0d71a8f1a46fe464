"""Budgets from their submission on: opened with the run, inherited, compared, and shared by those within."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from celery import Celery

from models import database
from models.journal import submitting, wallets
from models.journal.call_values import Exceeded, Limits, Reserved, Standing
from models.journal.errors import Refused, SubmissionConflict, UnknownRun
from models.journal.submitting import Submission
from models.settings import settings
from models.states import BlockReason
from ops import budgets, client
from tasks import Budget, Context, paying, registry, starting, step, workflow
from tasks.budgets import BudgetError
from tasks.canvas import Canvas
from tasks.errors import EffectBlocked
from tests.support import intents
from tests.support.calling import WRONG_BOOKS, reservation
from tests.support.journal import Journal, Worker, row_of, submit_run


@step
def ask(ctx: Context, text: str) -> str:
    return text


def _plan(text: str) -> Canvas:
    return ask.s(text)


DOLLAR = Limits(cost=Decimal("1.00"))


@pytest.fixture
def workflows(
    journal: Journal, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Journal]:
    """``plain`` without a budget and ``frugal`` with one; messages go to a broker of the test's own."""
    monkeypatch.setenv("ONWARD_BROKER_URL", broker_url)
    settings.cache_clear()
    app = Celery("budgets-test", broker=broker_url)
    monkeypatch.setattr(client, "app", lambda: app)
    with registry.isolated():
        workflow("plain", version="1", steps=[ask])(_plan)
        workflow("frugal", version="1", steps=[ask], budget=Budget(cost="0.50", calls=2))(_plan)
        yield journal
    app.close()


def limits(run_or_batch: str) -> Limits:
    return wallets.standing(run_or_batch).limits


def claim(run_id: str, of: str = "plain") -> Any:
    claimed = Worker().claim(run_id, "ask", workflow=of)
    assert claimed is not None
    return claimed


def test_a_run_is_submitted_with_what_it_may_spend(workflows: Journal) -> None:
    run = client.submit("plain", text="a", budget=Budget(cost="1.00", attempts=5))
    assert limits(run.run_id) == Limits(cost=Decimal(1), attempts=5)
    assert workflows.run(run.run_id)["wallet_id"] == run.run_id
    assert claim(run.run_id).wallet_id == run.run_id


def test_without_a_budget_no_wallet_is_opened(workflows: Journal) -> None:
    run = client.submit("plain", text="a")
    assert workflows.rows("SELECT 1 FROM wallet") == []
    assert claim(run.run_id).wallet_id is None


def test_a_workflows_own_budget_holds_unless_the_submission_names_one(workflows: Journal) -> None:
    assert limits(client.submit("frugal", text="a").run_id) == Limits(cost=Decimal("0.5"), calls=2)
    named = client.submit("frugal", text="a", budget={"tokens": 9})
    assert limits(named.run_id) == Limits(tokens=9)


def test_the_wallet_is_opened_in_the_submissions_own_transaction(workflows: Journal) -> None:
    """A submission that does not come to be leaves no wallet behind, and no run is seen without its own."""
    prepared = starting.prepare("plain", {"text": "a"}, run_id="run-x", budget={"cost": "1"})
    with suppress(ZeroDivisionError), database.transaction():
        submitting.submit(prepared)
        _ = 1 / 0  # the caller's transaction is undone
    assert workflows.rows("SELECT 1 FROM wallet") == workflows.rows("SELECT 1 FROM run") == []
    assert submitting.submit(prepared).created
    (row,) = workflows.rows(
        "SELECT r.xmin = w.xmin AS same FROM run r JOIN wallet w USING (wallet_id)"
    )
    assert row["same"]


@pytest.mark.parametrize("again", [{"cost": "1.00"}, {"cost": 1}, None])
def test_submitting_again_gives_the_same_run_and_changes_no_budget(
    workflows: Journal, again: Mapping[str, object] | None
) -> None:
    first = client.submit("plain", text="a", key="k", budget={"cost": "1.00"})
    second = client.submit("plain", text="a", key="k", budget=again)
    assert (second.run_id, second.created) == (first.run_id, False)
    assert limits(first.run_id) == DOLLAR


@pytest.mark.parametrize(
    ("first", "again"),
    [({"cost": "1.00"}, {"cost": "2.00"}), (None, {"cost": "1.00"}), ({"cost": 1}, {"calls": 1})],
)
def test_submitting_again_with_another_budget_is_refused(
    workflows: Journal, first: Mapping[str, object] | None, again: Mapping[str, object]
) -> None:
    run = client.submit("plain", text="a", key="k", budget=first)
    before = limits(run.run_id)
    with pytest.raises(SubmissionConflict, match=rf"onward runs budget {run.run_id}"):
        client.submit("plain", text="a", key="k", budget=again)
    assert limits(run.run_id) == before
    assert workflows.one("SELECT count(*) FROM run") == 1


def test_a_budget_that_was_raised_since_is_no_other(workflows: Journal) -> None:
    given: dict[str, Any] = {"text": "a", "key": "k", "budget": {"cost": "1.00"}}
    run = client.submit("plain", **given)
    wallets.raise_limits(run.run_id, by="ada", reason="more", cost=Decimal(3))
    assert client.submit("plain", **given).run_id == run.run_id
    with pytest.raises(SubmissionConflict):
        client.submit("plain", **{**given, "budget": {"cost": "4.00"}})


def test_a_workflows_new_default_does_not_hinder_submitting_again(workflows: Journal) -> None:
    first = client.submit("frugal", text="a", key="k")
    with registry.isolated():
        workflow("frugal", version="1", steps=[ask], budget=Budget(cost="9.00"))(_plan)
        assert client.submit("frugal", text="a", key="k").run_id == first.run_id
    assert limits(first.run_id).cost == Decimal("0.5")


def test_a_batch_has_a_budget_of_all_its_runs(workflows: Journal) -> None:
    batch = client.submit_batch(
        "frugal", [{"text": "a"}, {"text": "b"}], batch_id="night", budget=Budget(cost="1.00")
    )
    assert limits("night") == DOLLAR
    for run in batch.runs:
        standing = wallets.standing(run.run_id)
        assert (standing.parent_id, standing.limits.calls) == ("night", 2)
    later = client.submit("plain", text="c", batch_id="night")
    assert wallets.standing(later.run_id).parent_id == "night"
    assert claim(later.run_id).wallet_id == later.run_id


def test_a_batch_is_submitted_again_with_the_same_budget_only(workflows: Journal) -> None:
    given: dict[str, Any] = {"inputs": [{"text": "a"}], "batch_id": "night"}
    first = client.submit_batch("plain", **given, budget={"cost": "1.00"})
    assert client.submit_batch("plain", **given, budget={"cost": 1}).runs[0] == replace(
        first.runs[0], created=False
    )
    client.submit_batch("plain", **given)
    with pytest.raises(SubmissionConflict, match="onward batch budget night"):
        client.submit_batch("plain", **given, budget={"cost": "2.00"})


def test_a_budget_is_checked_before_anything_is_submitted(workflows: Journal) -> None:
    wrong: Any = {"costs": "1.00"}
    for submit in (
        lambda: client.submit("plain", text="a", batch_id="b", budget=wrong),
        lambda: client.submit_batch("plain", [{"text": "a"}], batch_id="b", budget=wrong),
    ):
        with pytest.raises(BudgetError, match="no 'costs'"):
            submit()
    assert workflows.rows("SELECT 1 FROM batch") == workflows.rows("SELECT 1 FROM run") == []


def within(parent: str, **options: Any) -> str:
    """A run that another one started: its child, or its fork."""
    prepared: Submission = starting.prepare("plain", {"text": "child"}, within=parent, **options)
    return submitting.submit(prepared).run_id


def test_a_run_within_another_is_paid_from_its_wallet(workflows: Journal) -> None:
    parent = client.submit("plain", text="a", budget={"cost": "0.25"}).run_id
    child = within(parent)
    assert workflows.run(child)["wallet_id"] == parent
    assert wallets.reserve(claim(parent), reservation(cost="0.10")) == Reserved()
    assert wallets.reserve(claim(child), reservation(cost="0.10")) == Reserved()
    assert wallets.standing(child).wallet_id == parent
    assert wallets.standing(child).held_cost == Decimal("0.20")
    grandchild = within(child)
    refused = wallets.reserve(claim(grandchild), reservation(cost="0.10"))
    assert isinstance(refused, Exceeded)
    assert refused.wallet_id == parent
    assert workflows.rows(WRONG_BOOKS) == []


def test_a_run_within_one_that_has_no_wallet_yet_opens_it(workflows: Journal) -> None:
    parent = client.submit("plain", text="a", batch_id="night").run_id
    child = within(parent)
    assert workflows.run(parent)["wallet_id"] == workflows.run(child)["wallet_id"] == parent
    assert wallets.reserve(claim(child), reservation(cost="0.10")) == Reserved()
    assert wallets.standing("night").held_cost == Decimal("0.10")


def test_a_run_within_another_may_have_a_limit_of_its_own_below_it(workflows: Journal) -> None:
    parent = client.submit("plain", text="a", budget={"cost": "5.00"}).run_id
    child = within(parent, budget={"cost": "0.10"})
    assert wallets.standing(child).parent_id == parent
    claimed = claim(child)
    assert wallets.reserve(claimed, reservation(cost="0.10")) == Reserved()
    assert wallets.standing(parent).held_cost == Decimal("0.10")
    seen = paying.read(child)
    assert (seen.left.cost, paying.read(parent).left.cost) == (Decimal(0), Decimal("4.90"))
    assert [one.wallet_id for one in paying.chain(child)] == [child, parent]


def test_a_workflows_own_budget_is_not_a_childs(workflows: Journal) -> None:
    """A child is paid by who started it; a default of its own would be a second allowance."""
    parent = client.submit("plain", text="a", budget={"cost": "1.00"}).run_id
    prepared = starting.prepare("frugal", {"text": "child"}, within=parent)
    child = submitting.submit(prepared).run_id
    assert limits(child) == DOLLAR


def test_a_run_within_one_that_does_not_exist_is_refused(workflows: Journal) -> None:
    with pytest.raises(UnknownRun):
        within("run-none")
    assert workflows.rows("SELECT 1 FROM run") == []


def test_later_attempts_have_the_same_wallet(journal: Journal) -> None:
    run_id = submit_run(row_of("a"), budget=Limits(attempts=2))
    claimed = Worker().take(run_id, "a")
    for _ in range(2):
        paying.require_budget(claimed)
        claimed = intents.again(journal, claimed)
    with pytest.raises(EffectBlocked, match="attempted 2 times") as stop:
        paying.require_budget(claimed)
    assert stop.value.reason == BlockReason.BUDGET_EXCEEDED
    assert claimed.wallet_id == run_id


def test_steps_of_a_run_without_limits_are_let_in_without_asking(journal: Journal) -> None:
    claimed = Worker().take(submit_run(row_of("a")), "a")
    database.close()
    paying.require_budget(
        replace(claimed, owner="nobody")
    )  # nothing is read: this one owns no step


def test_the_next_step_of_a_branch_keeps_the_wallet(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"), budget=DOLLAR)
    following = Worker().complete_and_claim(Worker().take(run_id, "a")).claimed
    assert following is not None
    assert following.wallet_id == run_id


def test_a_limit_is_changed_by_name_but_not_below_what_is_gone(journal: Journal) -> None:
    run_id = submit_run(row_of("a"), budget=DOLLAR)
    wallets.reserve(Worker().take(run_id, "a"), reservation(cost="0.10", tokens=100))
    for below in (Limits(cost=Decimal("0.09")), Limits(tokens=99), Limits(calls=0)):
        with pytest.raises(Refused, match="spent or reserved already"):
            budgets.change(budgets.of(run_id), below, by="ada", reason="less")
    assert limits(run_id) == DOLLAR
    lower = Limits(cost=Decimal("0.10"), tokens=100, calls=1)
    report = budgets.change(budgets.of(run_id), lower, by="ada", reason="just that")
    assert report.standing.limits == lower
    assert report.standing.left_cost == 0
    assert journal.events(run_id) == ["budget_raised"]


def test_reports_say_what_was_counted(journal: Journal) -> None:
    run_id = submit_run(row_of("a"), budget=replace(DOLLAR, attempts=3, seconds=60.0))
    wallets.reserve(Worker().take(run_id, "a"), reservation(cost="0.10", tokens=100))
    told = dict(budgets.of(run_id).facts())
    assert told["cost budget"] == "spent 0.00 USD, reserved 0.10 USD, left 0.90 USD of 1.00 USD"
    assert told["tokens"] == "spent 0 tokens, reserved 100 tokens"
    assert told["attempts budget"] == "3 of each step"
    assert told["seconds budget"] is not None
    assert told["recovery cost"] is None
    standing: Standing = budgets.of(run_id).standing
    assert standing.held_calls == 1
