"""PostgreSQL and Valkey of a home: nothing is lost, nothing is left behind, nothing collides."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ops.stack import EventKind, Home, HomeInUse, ProcessEvent, Servers, StackError
from ops.stack import postgres as postgres_module
from ops.stack.identity import processes_in
from ops.stack.privilege import Privilege, unprivileged
from tests.support.programs import is_gone, running, wait_gone
from tests.support.waiting import wait_until

HOLD = """
import sys, time
from ops.stack import Servers
with Servers(sys.argv[1]) as servers:
    print(*servers.pids.values(), flush=True)
    while True:
        servers.poll()
        time.sleep(0.05)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def journal(servers: Servers) -> "psycopg.Connection[tuple[int]]":
    return psycopg.connect(servers.database_url.replace("+psycopg", "", 1), autocommit=True)


def note(servers: Servers, number: int) -> None:
    """Leave a row and a message behind."""
    with journal(servers) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS noted (number int)")
        connection.execute("INSERT INTO noted VALUES (%s)", (number,))
    with redis.Redis.from_url(servers.broker_url) as broker:
        broker.rpush("noted", number)


def rows(servers: Servers) -> list[int]:
    with journal(servers) as connection:
        return [number for (number,) in connection.execute("SELECT * FROM noted ORDER BY 1")]


def messages(servers: Servers) -> list[int]:
    with redis.Redis.from_url(servers.broker_url) as broker:
        found = broker.lrange("noted", 0, -1)
    assert isinstance(found, list)
    return [int(number) for number in found]


def backends(home: Path) -> list[int]:
    """Everything that works in the data directory: the server and its backends."""
    return processes_in(home / "postgres")


def test_an_orderly_stop_leaves_no_process_and_loses_nothing(home: Path) -> None:
    with Servers(home) as servers:
        note(servers, 1)
        pids = [*servers.pids.values(), *backends(home)]
        url = servers.database_url
    assert all(map(is_gone, pids))
    with Servers(home) as servers:
        assert servers.database_url == url
        assert rows(servers) == [1]
        assert messages(servers) == [1]


def test_a_killed_supervisor_leaves_no_process_and_the_next_one_recovers(home: Path) -> None:
    with running(HOLD, str(home)) as holder:
        assert holder.stdout is not None
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        pids += backends(home)
        assert len(pids) > 2
        holder.kill()
        holder.wait()
        wait_gone(pids)
    with Servers(home) as servers:
        note(servers, 2)
        assert rows(servers) == [2]


def test_a_start_does_not_trip_over_the_servers_of_a_supervisor_killed_just_now(home: Path) -> None:
    with running(HOLD, str(home)) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        ports = (home / "ports.json").read_text()
        holder.kill()
        holder.wait()
        with Servers(home) as servers:
            note(servers, 1)
    assert (home / "ports.json").read_text() == ports


def test_a_second_start_on_the_same_home_is_refused(home: Path) -> None:
    with Servers(home), running(HOLD, str(home), stderr=subprocess.PIPE) as second:
        _, complaint = second.communicate(timeout=30)
        assert f"(pid {os.getpid()}); stop it with `onward down`" in complaint
        assert second.returncode != 0
        with pytest.raises(HomeInUse):
            Servers(home).__enter__()


def test_two_homes_run_side_by_side(home: Path, servers: Servers) -> None:
    with Servers(home) as others:
        note(others, 1)
        assert others.database_url != servers.database_url
        with redis.Redis.from_url(servers.broker_url) as broker:
            assert broker.llen("noted") == 0


def test_killed_servers_come_back_with_everything(home: Path) -> None:
    events: list[ProcessEvent] = []
    with Servers(home, on_event=events.append) as servers:
        note(servers, 1)
        for pid in servers.pids.values():
            os.kill(pid, signal.SIGKILL)

        def both_back() -> bool:
            servers.poll()
            return [event.kind for event in events].count(EventKind.RESTARTED) == 2

        wait_until(both_back, what="both servers are back", details=lambda: str(events))
        servers.wait_ready()
        assert rows(servers) == [1]
        assert messages(servers) == [1]


def test_a_broker_that_lost_its_data_comes_back_empty(home: Path) -> None:
    with Servers(home) as servers:
        note(servers, 1)
        servers.lose_broker_data()
        servers.restart("valkey")
        assert messages(servers) == []
        assert rows(servers) == [1]


def test_a_stranger_with_the_old_pid_does_not_block_a_start(home: Path) -> None:
    with Servers(home) as servers:
        note(servers, 1)
        servers.kill("postgres")
        pid_file = home / "postgres" / "postmaster.pid"
        stale = pid_file.read_text().split("\n", 1)
        pid_file.write_text(f"{os.getpid()}\n{stale[1]}")
        servers.restart("postgres")
        assert rows(servers) == [1]


def test_a_creation_that_was_cut_short_is_begun_again(home: Path) -> None:
    (home / "postgres.new").mkdir(parents=True)
    (home / "postgres.new" / "PG_VERSION").write_text("18\n")
    with Servers(home) as servers:
        note(servers, 1)
        assert rows(servers) == [1]


def test_the_servers_let_nobody_in_without_the_password(servers: Servers) -> None:
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(
            f"host=127.0.0.1 user=onward dbname=onward port={_port(servers.database_url)}"
        )
    with (
        redis.Redis(port=_port(servers.broker_url), retry=Retry(NoBackoff(), 0)) as broker,
        pytest.raises(redis.AuthenticationError),
    ):
        broker.ping()


def test_the_journal_is_set_to_be_durable(servers: Servers) -> None:
    with journal(servers) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert str(connection.execute(f"SHOW {setting}").fetchone()) == "('on',)"


def test_servers_of_the_users_own_are_used_and_not_started(home: Path, servers: Servers) -> None:
    with Servers(home, database_url=servers.database_url) as mixed:
        assert list(mixed.pids) == ["valkey"]
        assert mixed.database_url == servers.database_url
        with pytest.raises(StackError, match="no process named postgres"):
            mixed.kill("postgres")


def test_data_of_another_major_version_is_refused_with_a_way_out(home: Path) -> None:
    with Servers(home):
        pass
    (home / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(StackError, match="made by PostgreSQL 14, installed is 18: bring the data"):
        Servers(home).__enter__()
    assert not Home.at(home).is_locked()


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A home that another user can reach, which pytest's directories are not."""
    made = Path(tempfile.mkdtemp(prefix="onward-tests-"))
    yield made / "home"
    shutil.rmtree(made)


def test_root_without_namespaces_runs_postgres_as_nobody(
    open_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        assert unprivileged(Path("/bin/true")) == Privilege()
        return
    monkeypatch.setattr(
        postgres_module, "unprivileged", lambda program: unprivileged(program, namespace=False)
    )
    open_home.parent.chmod(0o711)
    with Servers(open_home) as servers:
        note(servers, 1)
        owner = Path(f"/proc/{servers.pids['postgres']}").stat().st_uid
        assert owner == (open_home / "postgres").stat().st_uid != 0
    with Servers(open_home) as servers:
        assert rows(servers) == [1]


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].split("/")[0])
