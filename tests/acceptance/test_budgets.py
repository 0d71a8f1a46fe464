"""A budget on a real run: seen, used up, raised by name and gone on with, all from the command line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from models import database
from models.settings import settings
from tests.support.cli import Cli, cli_for
from tests.support.models import models_service
from tests.support.spending import Spending, spending
from tests.support.waiting import wait_until
from tests.support.world import World


@dataclass(frozen=True)
class Here:
    """A deployment that pays for its calls, and the command line of somebody who uses it."""

    paying: Spending
    onward: Cli

    def submit(self, text: str, *more: str, times: int = 1, workflow: str = "spender") -> str:
        given = f'{{"text": "{text}", "times": {times}}}'
        said = self.onward("submit", workflow, "--input", given, "--json", *more)
        return str(said.json["run_id"])

    def state(self, run_id: str) -> Any:
        return self.onward("runs", "show", run_id, "--json").json


@pytest.fixture(scope="module")
def here(
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Here]:
    directory: Path = tmp_path_factory.mktemp("budgets")
    with models_service(directory) as models, spending(make_world, models, directory) as paying:
        onward = cli_for(
            directory, ONWARD_DATABASE_URL=settings().database_url,
            ONWARD_BROKER_URL=settings().broker_url, ONWARD_AGENTS="tests.agents.budgeted",
        )  # fmt: skip
        yield Here(paying, onward)


@dataclass(frozen=True)
class Blocked:
    """A run whose fourth call was refused."""

    here: Here
    run_id: str


@pytest.fixture(scope="module")
def blocked(here: Here) -> Blocked:
    run_id = here.submit("by hand", "--budget", '{"cost": "1.00", "calls": 10}', times=4)
    here.paying.wait_blocked(run_id, "budget_exceeded")
    return Blocked(here, run_id)


def test_a_run_shows_what_it_spent_and_has_left(blocked: Blocked) -> None:
    onward, run_id = blocked.here.onward, blocked.run_id
    shown = onward("runs", "show", run_id).out
    assert "cost budget  spent 0.90 USD, reserved 0.00 USD, left 0.10 USD of 1.00 USD" in shown
    assert "calls budget spent 3 calls, reserved 0 calls, left 7 calls of 10 calls" in shown
    assert f"`onward runs budget {run_id} --cost 1.20 --reason ...` raises the limit" in shown
    budget = blocked.here.state(run_id)["budget"]
    assert budget["limits"]["cost"] == "1.00"
    assert (budget["spent"]["cost"], budget["left"]["cost"]) == ("0.90", "0.10")
    assert (budget["left"]["calls"], budget["left"]["tokens"]) == (7, None)
    assert budget["recovery"]["tokens"] == 0


def test_the_calls_of_a_run_are_listed_with_their_verdicts(blocked: Blocked) -> None:
    onward, run_id = blocked.here.onward, blocked.run_id
    calls = onward("runs", "calls", run_id, "--json").json
    assert [call["place"]["position"] for call in calls] == [0, 1, 2]
    assert {call["model"] for call in calls} == {"gpt-x"}
    assert {call["state"] for call in calls} == {"complete"}
    assert {call["cost"] for call in calls} == {"0.30"}
    assert "request" not in calls[0]
    full = onward("runs", "calls", run_id, "--step", "think", "--text", "--json").json
    assert "by hand #0" in full[0]["request"]
    assert "choices" in full[0]["answer"]
    assert "by hand #2" in onward("runs", "calls", run_id, "--text").out


def test_the_history_tells_of_calls(blocked: Blocked) -> None:
    told = blocked.here.onward("history", blocked.run_id, "--json").json
    answered = [one for one in told if one["kind"] == "call_answered"]
    assert len(answered) == 3
    assert answered[0]["detail"].startswith("gpt-x (#0): complete, ")
    assert answered[0]["detail"].endswith(" tokens, 0.3 USD")


def test_a_step_sees_what_is_left(blocked: Blocked) -> None:
    notes = blocked.here.paying.world.notes(blocked.run_id, "think")
    left = [(one["cost"], one["calls"]) for one in notes if one["what"] == "left"]
    assert left[:3] == [("0.70", 9), ("0.40", 8), ("0.10", 7)]


def test_a_limit_below_what_is_spent_is_refused(blocked: Blocked) -> None:
    said = blocked.here.onward("runs", "budget", blocked.run_id, "--cost", "0.50")
    assert "has 0.90 USD spent or reserved already" in said.sentence
    assert blocked.here.state(blocked.run_id)["budget"]["limits"]["cost"] == "1.00"


def test_a_limit_that_cannot_be_meant_is_refused(blocked: Blocked) -> None:
    said = blocked.here.onward("runs", "budget", blocked.run_id, "--cost", "five")
    assert said.code == 2
    assert "cost must be US dollars, such as '5.00', not 'five'" in said.sentence


def test_raising_it_by_name_lets_it_go_on_from_the_same_step(blocked: Blocked) -> None:
    onward, run_id, models = blocked.here.onward, blocked.run_id, blocked.here.paying.models
    onward("runs", "resume", run_id, "--yes")
    blocked.here.paying.wait_blocked(run_id, "budget_exceeded")
    assert models.count("by hand") == 3

    command = ("runs", "budget", run_id, "--cost", "1.20", "--by", "ada", "--reason", "worth it")
    assert onward(*command, "--json").json["limits"]["cost"] == "1.20"
    assert blocked.here.state(run_id)["run"]["state"] == "blocked"
    onward("runs", "resume", run_id, "--yes", "--by", "ada")
    blocked.here.paying.world.wait_run(run_id)

    assert models.count("by hand") == 4  # the three recorded answers were not asked for again
    told = onward("history", run_id, "--json").json
    (raised,) = [one for one in told if one["kind"] == "budget_raised"]
    assert (raised["actor"], "worth it" in raised["detail"]) == ("ada", True)
    table = onward("runs", "budget", run_id).out
    assert "1.20 USD" in table
    assert "0.00 USD" in table


def test_what_recovery_cost_is_shown(here: Here) -> None:
    tokens = here.paying.script("lost once")
    here.paying.die("L2", 1)
    run_id = here.submit("lost once")
    here.paying.wait_blocked(run_id, "poison_step")
    here.onward("runs", "resume", run_id, "--yes")
    here.paying.world.wait_run(run_id)
    shown = here.onward("runs", "show", run_id).out
    assert f"recovery cost {tokens:,} tokens, 0.30 USD, " in " ".join(shown.split())
    assert (
        f"recovery cost {tokens:,} tokens, 0.30 USD and "
        in here.onward("runs", "verify", run_id).out
    )
    recovery = here.state(run_id)["budget"]["recovery"]
    assert (recovery["tokens"], recovery["cost"]) == (tokens, "0.30")
    assert recovery["seconds"] > 0


def test_a_batch_has_one_budget_which_is_raised_for_all(here: Here) -> None:
    onward = here.onward
    first = here.submit("batched", "--batch", "night", times=1)
    here.paying.world.wait_run(first)
    assert onward("batch", "budget", "night", "--cost", "0.60", "--json").json["changed"]
    second = here.submit("batched", "--batch", "night", times=2)
    said = here.paying.wait_blocked(second, "budget_exceeded")
    assert "`onward batch budget night --cost 0.90 --reason ...`" in said
    shown = onward("batch", "status", "night").out
    assert "cost budget spent 0.60 USD, reserved 0.00 USD, left 0.00 USD of 0.60 USD" in " ".join(
        shown.split()
    )
    onward("batch", "budget", "night", "--cost", "0.90", "--by", "ada")
    assert "by ada: cost 0.90 of batch night" in onward("batches", "budget", "night").out
    shown = " ".join(onward("runs", "show", second).out.split())
    assert (
        "cost budget of batch night spent 0.60 USD, reserved 0.00 USD, left 0.30 USD of 0.90 USD"
        in shown
    )
    onward("batch", "recover", "night", "--yes")
    here.paying.world.wait_run(second)
    assert onward("runs", "budget", second, "--json").json["paid_from"] == ["night"]


def test_a_workflows_own_budget_holds_where_a_submission_names_none(here: Here) -> None:
    run_id = here.submit("thrifty ones", workflow="thrifty", times=6)
    assert "5 calls" in here.paying.wait_blocked(run_id, "budget_exceeded")
    assert here.paying.models.count("thrifty ones") == 5
    other = here.submit("thrifty others", "--budget", '{"calls": 6}', workflow="thrifty", times=6)
    here.paying.world.wait_run(other)


def test_a_message_carries_a_budget(here: Here) -> None:
    world = here.paying.world
    order = {
        "workflow": "spender", "input": {"text": "by message", "times": 3}, "key": "by-message",
        "budget": {"cost": "0.60"},
    }  # fmt: skip
    world.app.send_task("onward.start_run", kwargs=order, queue="onward.start")
    row = wait_until(
        lambda: database.fetch_one(
            "SELECT run_id FROM run WHERE submission_key = 'by-message'", {}
        ),
        timeout=30,
        what="the run is submitted",
    )
    here.paying.wait_blocked(row[0], "budget_exceeded")
    assert here.paying.models.count("by message") == 2


def test_a_budget_that_cannot_be_meant_submits_nothing(here: Here) -> None:
    given = ("--input", '{"text": "never"}', "--key", "never")
    said = here.onward("submit", "spender", *given, "--budget", '{"dollars": 1}')
    assert "no 'dollars'" in said.sentence
    assert database.fetch("SELECT 1 FROM run WHERE submission_key = 'never'", {}) == []
