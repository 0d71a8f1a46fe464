"""An unchanged agent, killed after each recorded call in turn: the model and the desk count what happened."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from models import database
from tests.adapters.killing import AFTER, CALLS, recorded
from tests.support.models import Answer, ModelService, models_service
from tests.support.world import World

TICKETS = "ab"  #: two at once
ANSWER = "We are looking for it, and have opened a ticket."


@dataclass(frozen=True)
class Desk:
    """A worker in this environment, models and a desk."""

    world: World
    models: ModelService

    def check(self, label: str, after: str, *, step_key: str = "answer") -> None:
        """Run the agent once, killed after that call, and count."""
        order = f"{label}-{after}-order"
        self._script(order)
        run_id = self.world.start(f"{label}-{after}", question=f"Where is {order}?")
        self.world.wait_run(run_id, timeout=60.0)

        assert self.world.value(run_id, step_key) == ANSWER
        deaths = CALLS if after == "each" else 1
        assert self.world.attempts(run_id) == {step_key: 1 + deaths}
        assert recorded(self.world.directory / "failpoints", f"{label}-{after}.{step_key}") == CALLS
        calls = self.models.calls(order)
        assert [call.outcome for call in calls] == ["answered"] * CALLS
        assert all("sk-of-" in call.headers for call in calls)
        for ticket in TICKETS:
            assert self.world.fx.effects(f"{order}{ticket}") == 1
            assert self.world.fx.calls(f"{order}{ticket}") == 1

    def check_side_by_side(self, label: str, *, step_key: str) -> None:
        """An agent that asks about the left and the right at once, then about both, killed at each answer."""
        order = f"{label}-order"
        for side in ("left", "right", "both"):
            self.models.script(f"{side} of {order}", f"{side} answer")
        run_id = self.world.start(f"{label}-each", question=order)
        self.world.wait_run(run_id, timeout=60.0)

        assert self.world.value(run_id, step_key) == "left answer, right answer: both answer"
        attempts = self.world.attempts(run_id)[step_key]
        assert 1 < attempts <= 1 + CALLS
        kept = database.fetch_one(
            "SELECT count(*) FROM recorded_call WHERE run_id = %(id)s", {"id": run_id}
        )
        assert kept == (CALLS,)
        # What was in the air beside a recorded one when that killed was asked again, and nothing else was.
        assert self.models.count(order) < CALLS + attempts
        assert self.models.count(f"both of {order}") == 1

    def _script(self, order: str) -> None:
        looks = tuple({"name": "look_up", "arguments": {"order": f"{order}{n}"}} for n in TICKETS)
        tickets = tuple(
            {"name": "desk_open_ticket", "arguments": {"order": f"{order}{n}", "text": "lost 丢失"}}
            for n in TICKETS
        )
        self.models.script(
            order, Answer(tool_calls=looks), Answer(tool_calls=tickets), Answer(text=ANSWER)
        )


@contextmanager
def a_desk(
    make_world: Callable[..., AbstractContextManager[World]], directory: Path, agents: str
) -> Iterator[Desk]:
    """Everything runs when this is entered, and the agents of this package are loaded."""
    with models_service(directory) as models:
        env = {
            "ONWARD_MODEL_ENDPOINTS": f"{models.url},{models.root}",
            "ONWARD_CRASH_LIMIT": str(CALLS + 1),
            "OPENAI_BASE_URL": models.url,
            "ONWARD_SECRET_OPENAI_API_KEY": "sk-of-a-test",
            "ANTHROPIC_BASE_URL": models.root,
            "ONWARD_SECRET_ANTHROPIC_API_KEY": "sk-of-a-test",
        }
        with make_world(agents=agents, env=env) as world:
            world.cluster.env["DESK_URL"] = f"{world.fx.url}/idempotent"
            world.cluster.up()
            yield Desk(world, models)


__all__ = ["AFTER", "Desk", "a_desk"]
