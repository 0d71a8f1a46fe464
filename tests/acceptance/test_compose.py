"""The compose file: valid by its schema and to the real Compose, and every service's exact command runs.

Containers are not started: each command, environment and health check runs here as a process, with the
addresses, ports and directories of this machine in the place of the container's.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from models.settings import Settings
from ops.stack.process import Program
from ops.stack.services import KILL_MARGIN, SHUTDOWN_GRACE
from ops.stack.supervisor import Supervisor
from tests.support.compose import (
    FILE,
    PASSWORD,
    ROOT,
    Place,
    compose_binary,
    config,
    free_port,
    install_programs,
    services,
)
from tests.support.waiting import wait_until

OURS = (
    "worker", "control", "beat-1", "beat-2", "flower", "metrics", "model-server", "registry",
)  # fmt: skip
ONE_SHOT = ("migrate", "demo")
CONTRACTS = 3


@pytest.fixture
def place(empty_database_url: str, broker_url: str, tmp_path: Path) -> Place:
    install_programs(tmp_path)
    url = urlsplit(empty_database_url)
    return Place(
        {
            "postgresql+psycopg://onward:onward@postgres:5432/onward": empty_database_url,
            "redis://valkey:6379/0": broker_url,
            "pg_isready": f"pg_isready -h {url.hostname} -p {url.port}",
            "5555": str(free_port()), "9464": str(free_port()), "8700": str(free_port()), "8701": str(free_port()),
            "model-server:": "127.0.0.1:", "registry:": "127.0.0.1:", "0.0.0.0": "127.0.0.1",  # noqa: S104 - replaced, never bound
            "/var/lib/onward": str(tmp_path / "store"), "/var/lib/artifacts": str(tmp_path / "artifacts"),
            "/run/secrets": str(tmp_path / "secrets"), "/tmp/beat": str(tmp_path / "beat"),
            "/tmp/onward": str(tmp_path / "home"),
        },
        tmp_path,
    )  # fmt: skip


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    running = Supervisor()
    yield running
    running.stop_all(in_a_hurry=lambda: True)


def test_the_schema_of_the_compose_specification_accepts_it() -> None:
    done = subprocess.run(
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", FILE],
        env=Place({}, ROOT).environment({}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_itself_accepts_it_and_asks_for_flowers_password() -> None:
    assert compose_binary().exists()
    assert config({"FLOWER_BASIC_AUTH": PASSWORD}).returncode == 0
    refused = config()
    assert refused.returncode != 0
    assert "FLOWER_BASIC_AUTH" in refused.stderr


def test_what_every_deployment_needs_is_there() -> None:
    found = services()
    assert {"postgres", "valkey", *ONE_SHOT, *OURS} == set(found)
    for name, service in found.items():
        restart = "no" if name in ONE_SHOT else "unless-stopped"
        assert service["restart"] == restart, name
        assert name in ONE_SHOT or service["healthcheck"]["test"], name
    assert {name for name, service in found.items() if service.get("profiles") == ["demo"]} == {
        "model-server", "registry", "demo",
    }  # fmt: skip
    waits_for = found["demo"]["depends_on"]
    assert {name: one["condition"] for name, one in waits_for.items()} == dict.fromkeys(
        ("worker", "model-server", "registry"), "service_healthy"
    )
    for name in ("flower", "metrics"):
        assert found[name]["ports"][0]["host_ip"] == "127.0.0.1"
    assert found["worker"]["volumes"][0]["target"] == "/agents"
    for name in ("worker", "control"):  # whoever reads what another process wrote
        mounted = {volume["target"] for volume in found[name]["volumes"]}
        assert mounted >= {
            "/agents",
            "/run/secrets",
            found[name]["environment"]["ONWARD_ARTIFACTS"],
        }
    assert "container_name" not in found["worker"], "--scale worker=N needs names of its own"


@pytest.mark.parametrize("name", ["worker", "control"])
def test_a_worker_gets_the_time_its_shutdown_settings_promise(name: str) -> None:
    service = services()[name]
    grace = float(service["stop_grace_period"].removesuffix("s"))
    assert grace >= SHUTDOWN_GRACE + KILL_MARGIN
    assert Settings().shutdown_grace == SHUTDOWN_GRACE
    assert service["environment"]["REMAP_SIGTERM"] == "SIGQUIT", (
        "soft shutdown acts on SIGQUIT only"
    )


def test_only_the_demo_has_an_outside_world_by_itself() -> None:
    names = ("ONWARD_LLM_BASE_URL", "ONWARD_REGISTRY_URL")
    alone, demo = (services(**more)["worker"] for more in ({}, {"COMPOSE_PROFILES": "demo"}))
    assert [alone["environment"][name] for name in names] == ["", ""]
    assert [demo["environment"][name] for name in names] == [
        "http://model-server:8700/v1", "http://registry:8701",
    ]  # fmt: skip
    mine = services(COMPOSE_PROFILES="demo", ONWARD_LLM_BASE_URL="https://llm.example/v1")["worker"]
    assert mine["environment"]["ONWARD_LLM_BASE_URL"] == "https://llm.example/v1"


@pytest.mark.timeout(150)
def test_every_service_runs_and_is_healthy_and_the_demo_reviews_contracts(
    place: Place, supervisor: Supervisor
) -> None:
    found = services(COMPOSE_PROFILES="demo", ONWARD_DEMO_DOCUMENTS=str(CONTRACTS))
    (place.directory / "store").mkdir()
    _once(place, found["migrate"])
    for name in OURS:
        supervisor.start(_program(place, name, found[name]), restart=None)
    for name in OURS:
        _wait_healthy(place, name, found[name])
    said = _once(place, found["demo"])
    assert f"{CONTRACTS} of {CONTRACTS} documents reviewed" in said
    assert f"{CONTRACTS} filings about {CONTRACTS} documents, 0 of them duplicates" in said
    assert set(supervisor.pids) == set(OURS), "every service still runs"


def test_the_servers_commands_and_checks_are_right(
    place: Place, supervisor: Supervisor, database_url: str
) -> None:
    found = services()
    port = free_port()
    valkey = found["valkey"]
    argv = [*place.command(valkey), "--port", str(port), "--dir", str(place.directory)]
    supervisor.start(_program(place, "valkey", valkey, argv=argv), restart=None)
    with redis.Redis(port=port) as client:
        wait_until(lambda: _answers(client), what="Valkey answers")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
    url = urlsplit(database_url)
    here = Place({}, place.directory)
    check = found["postgres"]["healthcheck"]["test"][1:]
    ready = subprocess.run(
        [*check, "-h", str(url.hostname), "-p", str(url.port)], env=here.environment({}),
        capture_output=True, check=False,
    )  # fmt: skip
    assert ready.returncode == 0
    assert found["postgres"]["stop_signal"] == "SIGINT", "SIGTERM waits for the last client"


def _once(place: Place, service: dict[str, object]) -> str:
    """Run a service that ends by itself, and return what it printed."""
    done = subprocess.run(
        place.command(service), env=place.environment(service), cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _wait_healthy(place: Place, name: str, service: dict[str, object]) -> None:
    wait_until(
        lambda: place.check(service).returncode == 0,
        timeout=60,
        what=f"the health check of {name} is green",
        details=lambda: str(place.check(service)) + _log(place, name).read_text(),
    )


def _answers(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _log(place: Place, name: str) -> Path:
    return place.directory / f"{name}.log"


def _program(
    place: Place, name: str, service: dict[str, object], *, argv: list[str] | None = None
) -> Program:
    # A container has a /tmp of its own: two beats on one schedule file disturb each other.
    own = Place({**place.replace, "/tmp/beat": str(place.directory / name)}, place.directory)
    return Program(
        name=name, argv=tuple(argv or own.command(service)), log=_log(place, name),
        env=place.environment(service), cwd=ROOT,
    )  # fmt: skip
