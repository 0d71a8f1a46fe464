"""Fixtures on real services: one PostgreSQL and one Valkey per session, one database per test."""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import pytest
import redis

from models import database, redaction
from models.settings import settings
from ops.stack import Servers
from tests.support.cluster import Cluster
from tests.support.databases import Databases
from tests.support.journal import Journal
from tests.support.models import ModelService, models_service
from tests.support.world import World, a_world

RUNGS = (
    "unit",
    "properties",
    "integration",
    "acceptance",
    "faults",
    "peers",
    "adapters",
    "architecture",
)

VALKEY_DATABASES = 256
CLUSTERS = pytest.StashKey[list[Cluster]]()
_broker_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test belongs to the rung whose directory it lies in."""
    here = Path(__file__).parent
    for item in items:
        rung = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if rung in RUNGS:
            item.add_marker(rung)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the log of every process it started."""
    report = yield
    if report.failed:
        for node in item.listchain():
            for cluster in node.stash.get(CLUSTERS, []):
                report.sections.extend((f"log of {name}", tail) for name, tail in cluster.tails())
    return report


@pytest.fixture(autouse=True)
def _nothing_revealed() -> Iterator[None]:
    """What one test reveals is no secret of the next."""
    yield
    redaction.forget()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """PostgreSQL and Valkey of this session, in a home that is thrown away."""
    home = Path(tempfile.mkdtemp(prefix="onward-tests-"))
    try:
        with Servers(home, valkey_databases=VALKEY_DATABASES) as running:
            yield running
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def databases(servers: Servers) -> Databases:
    return Databases(servers)


@pytest.fixture(scope="session")
def template(databases: Databases) -> Databases:
    """The databases of this session, with the template migrated."""
    databases.create_template()
    return databases


@pytest.fixture
def database_url(template: Databases) -> Iterator[str]:
    """A migrated, empty journal of this test's own."""
    with template.clone() as url:
        yield url


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """A database without any table."""
    with databases.empty() as url:
        yield url


@pytest.fixture
def broker_url(servers: Servers) -> str:
    """A database number of Valkey that is this test's own, empty."""
    return _empty_broker(servers)


@pytest.fixture
def journal(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """An empty journal that this process's verbs write to, without a broker."""
    monkeypatch.setenv("ONWARD_DATABASE_URL", database_url)
    settings.cache_clear()
    journal = Journal(database_url)
    yield journal
    journal.look.close()
    database.close()
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture
def environment(
    database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """This process's settings point at this test's servers. Set more, then call ``settings()``."""
    monkeypatch.setenv("ONWARD_DATABASE_URL", database_url)
    monkeypatch.setenv("ONWARD_BROKER_URL", broker_url)
    settings.cache_clear()
    yield monkeypatch
    database.close()
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture
def make_cluster(
    request: pytest.FixtureRequest, database_url: str, broker_url: str, tmp_path: Path
) -> Iterator[Callable[..., Cluster]]:
    """``make_cluster(agents="package", env={...})``: real workers, ended after the test."""
    clusters = request.node.stash.setdefault(CLUSTERS, [])

    def make(*, agents: str, env: Mapping[str, str] | None = None) -> Cluster:
        cluster = Cluster(
            tmp_path / f"cluster-{len(clusters) + 1}",
            database_url=database_url,
            broker_url=broker_url,
            agents=agents,
            env=env,
        )
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.stop_all()


@pytest.fixture
def models(tmp_path: Path) -> Iterator[ModelService]:
    """Scripted language models of this test's own, counted and billed."""
    with models_service(tmp_path) as service:
        yield service


@pytest.fixture(scope="session")
def make_world(
    request: pytest.FixtureRequest,
    servers: Servers,
    template: Databases,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., AbstractContextManager[World]]:
    """``with make_world(agents="package", env={...}) as world``: journal, broker, outside world, cluster.

    For fixtures of a module whose tests share workers, since starting one takes seconds.
    """
    clusters = request.node.stash.setdefault(CLUSTERS, [])

    @contextmanager
    def make(*, agents: str, env: Mapping[str, str] | None = None) -> Iterator[World]:
        directory = tmp_path_factory.mktemp("world")
        broker_url = _empty_broker(servers)
        with (
            template.clone() as database_url,
            a_world(
                directory, database_url=database_url, broker_url=broker_url, agents=agents, env=env
            ) as world,
        ):
            clusters.append(world.cluster)
            yield world
            clusters.remove(world.cluster)

    return make


def _empty_broker(servers: Servers) -> str:
    url = f"{servers.broker_url.rpartition('/')[0]}/{next(_broker_numbers) % VALKEY_DATABASES}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url
