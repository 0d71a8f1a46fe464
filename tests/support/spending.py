"""A world whose steps pay for model calls and die as ordered; what the models billed beside what the wallet says."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from pathlib import Path

import httpx2

from models import database
from models.journal import runs, wallets
from models.journal.call_values import Standing
from recovery import watch
from tasks.recorder import dialects
from tests.agents.budgeted import KILLS, MODEL, MOST, body_of
from tests.support.models import Answer, ModelService, Ways
from tests.support.waiting import wait_until
from tests.support.world import World

PRICE = Decimal("0.30")  #: of one call
PRICES = f'{{"{MODEL}": {{"call": {PRICE}}}}}'


class Spending:
    """One world, its models and its deaths."""

    def __init__(self, world: World, models: ModelService, kills: Path) -> None:
        self.world = world
        self.models = models
        self.kills = kills
        models.behave(Ways(prices={MODEL: {"input": 0, "output": 0, "call": 0.30}}))

    def die(self, point: str, times: int) -> None:
        """The next ``times`` processes that come by this point die there."""
        done = len(list(self.kills.glob(f"{point}.*")))
        (self.kills / f"{point}.new").write_text(str(done + times))
        (self.kills / f"{point}.new").rename(self.kills / point)

    def script(self, text: str, *, answer: str = "well", most: int = MOST) -> int:
        """Bill each call of ``text`` what is reserved for it, to the token; returns that."""
        url = f"{self.models.url}/chat/completions"
        request = httpx2.Request("POST", url, json=body_of(f"{text} #0"))
        dialect = dialects.of_path(url)
        assert dialect is not None
        tokens_in = dialects.wanted(dialect, request.content).tokens_in
        self.models.script(text, Answer(text=answer, tokens=(tokens_in, most)))
        return tokens_in + most

    def wait_blocked(self, run_id: str, reason: str) -> str:
        """Wait until the run is blocked for this reason; returns what is said of it."""
        self.world.wait_run(run_id, "blocked")
        run = database.fetch_one(
            "SELECT reason, detail FROM run WHERE run_id = %(id)s", {"id": run_id}
        )
        assert run is not None
        assert run[0] == reason, run
        return str(watch.why(run_id).sentence)

    def resume(self, run_id: str) -> None:
        """What ``onward runs resume`` does; the message is sent by ``wake``."""
        runs.send_back(run_id, by="ada")

    def resume_until_blocked(self, run_id: str) -> None:
        """Resume a run whose next attempt is blocked again."""
        attempts = self.world.step(run_id, "think").attempt
        self.resume(run_id)
        wait_until(
            lambda: self.world.step(run_id, "think").attempt > attempts,
            timeout=30,
            what="another attempt",
        )
        self.world.wait_run(run_id, "blocked")


def of(owner_id: str) -> Standing:
    return wallets.standing(owner_id)


def covered(standing: Standing) -> Decimal:
    """What the wallet counts as spent or as perhaps spent."""
    return standing.spent_cost + standing.held_cost


@contextmanager
def spending(
    make_world: Callable[..., AbstractContextManager[World]], models: ModelService, directory: Path,
    **env: str,
) -> Iterator[Spending]:  # fmt: skip
    """A worker and recovery; each crash waits for a person, so that a test decides when it goes on."""
    kills = directory / "kills"
    kills.mkdir()
    wanted = {
        "ONWARD_LLM_BASE_URL": models.url, "ONWARD_PRICES": PRICES, "ONWARD_CRASH_LIMIT": "1",
        KILLS: str(kills), **env,
    }  # fmt: skip
    with make_world(agents="tests.agents.budgeted", env=wanted) as world:
        world.cluster.up(concurrency=1)
        yield Spending(world, models, kills)
