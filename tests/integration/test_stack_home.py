"""The home directory: who holds it, which ports and secrets it remembers."""

import socket
from pathlib import Path

import pytest

from ops.stack import Home, HomeInUse, StackError
from tests.support.programs import running

HOLD = """
import sys
from ops.stack import Home
with Home.at(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.at(tmp_path / "home")
    made.create()
    return made


def listening(port: int = 0) -> socket.socket:
    server = socket.create_server(("127.0.0.1", port))
    server.listen()
    return server


def test_a_port_is_remembered(home: Home) -> None:
    port = home.port("pg")
    assert Home.at(home.path).port("pg") == port
    assert home.port("valkey") != port


def test_a_remembered_port_taken_by_a_stranger_is_replaced(home: Home) -> None:
    port = home.port("pg")
    with listening(port):
        assert home.port("pg") != port


def test_two_homes_start_their_search_at_different_places(tmp_path: Path) -> None:
    ports = set()
    for name in ("one", "two", "three"):
        home = Home.at(tmp_path / name)
        home.create()
        ports.add(home.port("pg"))
    assert len(ports) == 3


def test_a_port_asked_for_is_taken_and_not_remembered(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = home.port("pg")
    with listening() as probe:
        free = probe.getsockname()[1]
    monkeypatch.setenv("ONWARD_PG_PORT", str(free))
    assert home.port("pg") == free
    monkeypatch.delenv("ONWARD_PG_PORT")
    assert home.port("pg") == usual


def test_a_port_asked_for_that_is_taken_is_refused_by_name(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as server:
        monkeypatch.setenv("ONWARD_PG_PORT", str(server.getsockname()[1]))
        with pytest.raises(StackError, match=r"ONWARD_PG_PORT=\d+: something else listens"):
            home.port("pg")


@pytest.mark.parametrize("asked", ["0", "65536", "five", "-1", "８０"])
def test_a_port_that_is_none_is_refused_by_name(
    home: Home, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("ONWARD_VALKEY_PORT", asked)
    with pytest.raises(StackError, match=f"ONWARD_VALKEY_PORT={asked}"):
        home.port("valkey")


def test_a_secret_is_made_once_and_only_ours_to_read(home: Home) -> None:
    secret = home.secret("postgres")
    assert len(secret) >= 32
    assert Home.at(home.path).secret("postgres") == secret
    assert (home.path / "secrets" / "postgres").stat().st_mode & 0o777 == 0o600
    assert home.path.stat().st_mode & 0o077 == 0


def test_a_held_home_says_who_holds_it(home: Home) -> None:
    with running(HOLD, str(home.path), stdin=-1) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert home.is_locked()
        with pytest.raises(HomeInUse, match=rf"\(pid {holder.pid}\); stop it with `onward down`"):
            home.locked().__enter__()
    assert not home.is_locked()


def test_the_lock_of_a_killed_holder_is_free(home: Home) -> None:
    with running(HOLD, str(home.path), stdin=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
        holder.wait()
        with home.locked():
            assert home.is_locked()


def test_a_home_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="set ONWARD_HOME to another place"):
        Home.at(tmp_path / "file" / "home").create()
