"""C20: the API key is in the journal. It is not: nor in the broker, a log, Flower, an artifact, an error."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from models import database
from models.credentials import CredentialRefused
from models.secret import Secret
from models.settings import settings
from ops.stack import Servers
from tests.acceptance.test_flower import Flower
from tests.agents.secretive import WAYS
from tests.support.broker import publisher
from tests.support.canaries import Places, echoing, monitored, write_secrets
from tests.support.invariants import check_invariants
from tests.support.models import ModelService, models_service
from tests.support.waiting import wait_until
from tests.support.world import World

MakeWorld = Callable[..., AbstractContextManager[World]]

OLD = {
    "MODEL_KEY": "sk-CANARY-1-old-0f3a9c", "TOOL_TOKEN": "CANARY-2-old-77be12", "HOUSE_CODE": "CANARY-3-old-e45d08",
}  # fmt: skip
NEW = {name: value.replace("old", "new") for name, value in OLD.items()}
CANARIES = (*OLD.values(), *NEW.values())


class Stage:
    """A world whose agents use secrets, and everything that is watched there."""

    def __init__(self, world: World, models: ModelService, *, echo: str, servers: Servers) -> None:
        self.world, self.models = world, models
        self.places = Places(world, servers=servers.home.path / "logs")
        self.secrets = world.directory / "secrets"
        self.env = {
            "ONWARD_TEST_MODELS": models.url, "ONWARD_MODEL_ENDPOINTS": models.url, "ONWARD_TEST_ECHO": echo,
            "ONWARD_SECRETS_DIR": str(self.secrets),
            "ONWARD_ARTIFACTS": str(world.directory / "artifacts"), "ONWARD_OUTPUT_LIMIT": "100000",
        }  # fmt: skip

    def rotate(self, values: dict[str, str]) -> dict[str, str]:
        """One of them into the environment of workers to be started, the others into files."""
        write_secrets(self.secrets, **{name: values[name] for name in ("MODEL_KEY", "TOOL_TOKEN")})
        return {**self.env, "ONWARD_SECRET_HOUSE_CODE": values["HOUSE_CODE"]}

    def flower(self) -> Flower:
        """Flower, listening; what it heard is looked through in the end."""
        flower = Flower(self.world.cluster)
        wait_until(lambda: flower.hears("worker-1"), timeout=30, what="Flower hears the worker")
        return flower

    def nowhere(self, *run_ids: str, canaries: tuple[str, ...] = CANARIES) -> None:
        found = self.places.found(*canaries, run_ids=run_ids)
        assert not found, "\n\n".join(f"{place}: {shown}" for place, shown in found.items())


@pytest.fixture
def stage(make_world: MakeWorld, servers: Servers) -> Iterator[Stage]:
    with (
        make_world(agents="tests.agents.secretive") as world,
        models_service(world.directory) as models,
        echoing() as echo,
    ):
        found = Stage(world, models, echo=echo, servers=servers)
        with monitored(found.places.told):
            yield found


def hear(stage: Stage, flower: Flower, run_id: str) -> None:
    """Keep what Flower says about a run, once it knows of it."""
    wait_until(
        lambda: flower.found(f"kwargs:run_id={run_id}"), timeout=20, what="Flower knows the run"
    )
    tasks = flower.get("/api/tasks?limit=10000")
    details = [flower.get(f"/api/task/info/{one}") for one in tasks]
    stage.places.more["Flower"] = f"{tasks}\n{details}\n{flower.get('/api/workers')}".encode()


def bound(run_id: str) -> list[tuple[Any, ...]]:
    """(key, digest, request) of the run's effects."""
    return database.fetch(
        "SELECT key, request_digest, request FROM effect WHERE run_id = %(id)s"
        " UNION SELECT key, request_digest, request FROM effect_settlement WHERE run_id = %(id)s",
        {"id": run_id},
    )


@pytest.mark.parametrize("told", [False, True], ids=["in its header", "in its body too"])
def test_C20_three_secrets_rotate_while_a_run_is_dead_and_none_is_written_anywhere(
    stage: Stage, *, told: bool
) -> None:
    world, fx = stage.world, stage.world.fx
    for values in (OLD, NEW):  # a model that repeats what it was told
        stage.models.script(values["HOUSE_CODE"], f"Understood: {values['HOUSE_CODE']}")
    env = stage.rotate(OLD)
    fx.behave(authorization=f"Bearer {OLD['TOOL_TOKEN']}")
    fx.hold("dinner", "after")
    world.cluster.start_together(world.cluster.services.beat())
    world.cluster.control_worker(env=env)
    world.cluster.worker(env=env)
    flower = stage.flower()
    run_id = world.start("secretive", name="dinner", access=Secret("HOUSE_CODE") if told else None)
    fx.wait_held("dinner")
    before = bound(run_id)
    os.kill(world.holder(run_id), signal.SIGKILL)  # P3: done there, and nobody here knows
    for name in ("worker-1", "control"):
        world.cluster.kill(name)

    env = stage.rotate(NEW)
    if told:  # the service shows the old one, which the new processes would not know for one
        env["ONWARD_SECRET_HOUSE_CODE_OLD"] = OLD["HOUSE_CODE"]
    fx.behave(authorization=f"Bearer {NEW['TOOL_TOKEN']}")
    fx.release("dinner")
    world.cluster.control_worker("control-2", env=env)
    world.cluster.worker("worker-2", env=env)
    world.wait_run(run_id, timeout=90)

    finished(stage, run_id)
    assert len(before) == 1
    assert [row[:2] for row in bound(run_id)] == [row[:2] for row in before]
    hear(stage, flower, run_id)
    stage.nowhere(run_id)


def finished(stage: Stage, run_id: str) -> None:
    """One order, one request for it, one call of the model, which got what the journal does not have."""
    fx = stage.world.fx
    assert (fx.effects("dinner"), fx.calls("dinner"), len(fx.keys("dinner"))) == (1, 1, 1)
    (call,) = stage.models.calls("dinner")
    assert OLD["MODEL_KEY"] in call.headers
    assert OLD["HOUSE_CODE"] in call.request
    [resource] = fx.resources("dinner")
    assert stage.world.value(run_id, "report") == {
        "said": "Understood: [secret HOUSE_CODE]", "id": resource["id"], "code": "[secret HOUSE_CODE]",
    }  # fmt: skip
    check_invariants(settings().database_url, run_id)


def test_C20_no_error_gives_a_secret_away(stage: Stage) -> None:
    world = stage.world
    env = stage.rotate(OLD)
    world.cluster.start_together(world.cluster.services.beat())
    world.cluster.control_worker(env=env)
    world.cluster.worker(env=env)
    flower = stage.flower()
    runs = {way: world.start("giving-away", way=way) for way in (*WAYS, "echo", "twice")}
    for run_id in runs.values():
        world.wait_run(run_id, "failed", timeout=60)
    returned, large = (world.start("giving-away", way=way) for way in ("returned", "large"))
    world.wait_runs([returned, large])
    assert database.fetch_one("SELECT count(*) FROM artifact", {}) == (1,)
    value = world.value(returned, "give_away")
    assert value["value"] == "[secret TOOL_TOKEN]"
    assert value["echoed"]["you sent"]["Authorization"] == "[secret TOOL_TOKEN]"
    logs = world.cluster.logs("worker-1")
    assert "printed [secret TOOL_TOKEN]" in logs
    assert "caught, and logged with its traceback" in logs
    [(_, said)] = world.ended(runs["subprocess"], "give_away")
    assert "the tool said: [secret TOOL_TOKEN]" in said
    [(_, said)] = world.ended(runs["echo"], "give_away")
    assert '"you sent": {"Authorization": "[secret TOOL_TOKEN]"' in said
    hear(stage, flower, returned)
    stage.nowhere(runs["chained"], returned)


def test_C20_a_worker_that_is_stopped_in_the_middle_tells_flower_nothing(stage: Stage) -> None:
    """What leaves the child as an exception is told by the main process, which knows no secret."""
    world = stage.world
    env = stage.rotate(OLD)
    world.cluster.start_together(world.cluster.services.beat())
    world.cluster.worker(env=env)
    flower = stage.flower()
    runs = [world.start("giving-away", way=way) for way in ("exit", "grouped")]
    for run_id in runs:
        world.wait_run(run_id, "failed", timeout=60)
        hear(stage, flower, run_id)
    stage.nowhere(*runs)


REFUSED = {
    "config": {"openai_api_key": "sk-CANARY-1"},
    "nested": {"headers": [{"name": "Authorization", "value": "Bearer CANARY-2-0123456789abcd"}]},
}  # fmt: skip


def test_C20_credentials_in_an_input_are_refused_and_written_nowhere(stage: Stage) -> None:
    world = stage.world
    world.cluster.worker()
    flower = stage.flower()
    with pytest.raises(CredentialRefused, match=r"\$\.config\.openai_api_key") as refused:
        world.start("with-config", config=REFUSED["config"])
    assert "CANARY" not in str(refused.value)
    with publisher(settings().broker_url) as app:
        app.conf.broker_transport_options = {"global_keyprefix": settings().key_prefix}
        for name, config in REFUSED.items():
            app.send_task(
                "onward.start_run", queue="onward.start", task_id=name,
                kwargs={"workflow": "with-config", "input": {"config": config}, "run_id": f"run-{name}"},
            )  # fmt: skip
    wait_until(
        lambda: world.cluster.logs("worker-1").count("looks like a credential") >= len(REFUSED),
        what="both were refused",
        details=lambda: world.cluster.tail("worker-1"),
    )
    assert "$.config.openai_api_key" in world.cluster.logs("worker-1")
    allowed = world.start("with-config", config={"session_token": "a-token-that-is-none"})
    world.wait_run(allowed)
    assert database.fetch("SELECT run_id FROM run", {}) == [(allowed,)]
    wait_until(lambda: not world.broker.hlen("unacked"), what="the messages are gone")
    hear(stage, flower, allowed)
    stage.places.told.clear()  # strangers sent it through there themselves
    stage.nowhere(allowed, canaries=("sk-CANARY-1", "CANARY-2-0123456789abcd"))


def test_C20_a_missing_secret_is_named_and_a_retry_goes_on_once_it_is_there(stage: Stage) -> None:
    world = stage.world
    world.cluster.worker(env=stage.env)
    run_id = world.start("giving-away", way="returned")
    world.wait_run(run_id, "failed")
    [(_, said)] = world.ended(run_id, "give_away")
    assert "Secret TOOL_TOKEN has no value here" in said
    assert str(stage.secrets) in said


def test_C20_the_search_itself_finds_what_is_there(stage: Stage) -> None:
    """What looks for canaries must be able to find one, in each kind of place."""
    places = stage.places
    database.fetch("INSERT INTO batch (batch_id, label) VALUES ('b', 'CANARY-5-planted')", {})
    stage.world.broker.set("somewhere", "CANARY-6-planted")
    (stage.world.directory / "a-file").write_text("Q0FOQVJZLTctcGxhbnRlZA==")  # CANARY-7-planted
    found = places.found("CANARY-5-planted", "CANARY-6-planted", "CANARY-7-planted")
    assert {place.split()[0] for place in found} == {"pg_dump", "valkey", "file"}
    assert Path(stage.world.directory / "a-file").exists()
