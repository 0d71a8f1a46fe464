"""What an operator finds in Flower: runs and steps by search, nothing of what was said in them."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from celery import Celery

from models import database
from models.settings import settings
from ops.stack.services import FLOWER_USER
from tests.support.cluster import Cluster
from tests.support.compose import free_port
from tests.support.waiting import wait_until

SECRET = "the-prompt-nobody-may-see"


class Flower:
    """Flower's HTTP API with the password of the cluster's home."""

    def __init__(self, cluster: Cluster) -> None:
        port = free_port()
        program = cluster.services.flower(port)
        cluster.start(program)
        self._base = f"http://127.0.0.1:{port}"
        password = cluster.services.home.secret("flower")
        self._auth = base64.b64encode(f"{FLOWER_USER}:{password}".encode()).decode()

    def hears(self, worker: str) -> bool:
        """Whether the worker's events arrive: Flower listens a moment after it serves."""
        seen = self.get("/workers?json=1")["data"]
        return any(str(row["hostname"]).startswith(worker) and row["status"] for row in seen)

    def get(self, path: str) -> Any:
        request = urllib.request.Request(self._base + path)  # noqa: S310 - loopback
        request.add_header("Authorization", f"Basic {self._auth}")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.loads(answer.read())

    def found(self, search: str) -> dict[str, dict[str, Any]]:
        """Tasks that Flower's search finds, by id."""
        tasks: dict[str, dict[str, Any]] = self.get(f"/api/tasks?search={quote(search)}")
        return tasks


@pytest.mark.parametrize("sticky", ["false", "true"])
def test_runs_are_found_by_id_and_payloads_are_not_shown(
    make_cluster: Callable[..., Cluster], environment: pytest.MonkeyPatch, sticky: str
) -> None:
    environment.setenv("ONWARD_AGENTS", "tests.agents.words")
    settings.cache_clear()
    cluster = make_cluster(agents="tests.agents.words", env={"ONWARD_STICKY": sticky})
    cluster.worker()
    flower = Flower(cluster)
    wait_until(lambda: flower.hears("worker-1"), timeout=30, what="Flower hears the worker")
    with Celery(broker=settings().broker_url) as stranger:
        stranger.send_task(
            "onward.start_run",
            kwargs={
                "workflow": "words",
                "input": {"text": SECRET},
                "key": "order-17",
                "run_id": "run-17",
            },
            queue="onward.start",
        )
    wait_until(
        lambda: (
            database.fetch_one("SELECT state FROM run WHERE run_id = 'run-17'", {})
            == ("completed",)
        ),
        timeout=30,
        what="the run is completed",
    )

    wait_until(
        lambda: len(flower.found("kwargs:run_id=run-17")) >= 4,
        timeout=20,
        what="Flower finds the start and the three steps of the run",
        details=lambda: str(flower.get("/api/tasks")),
    )
    tasks = flower.found("kwargs:run_id=run-17")
    assert {task["name"] for task in tasks.values()} >= {
        "onward.start_run", "words.first", "words.second", "words.third",
    }  # fmt: skip
    assert flower.found("kwargs:step_key=second"), "steps are found, too"
    assert flower.found("kwargs:key=order-17"), "and the caller's own key"
    assert SECRET not in json.dumps(flower.get("/api/tasks"))


def test_nobody_writes_through_it(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(agents="tests.agents.words")
    flower = Flower(cluster)
    for call in ("/api/worker/shutdown/x", "/api/task/revoke/x"):
        request = urllib.request.Request(flower._base + call, method="POST", data=b"")  # noqa: S310
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)  # noqa: S310
        assert refused.value.code in (401, 403)
        refused.value.close()
