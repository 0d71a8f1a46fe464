"""Which deployment a command talks to, and what it says when there is none."""

import sys
from pathlib import Path

import pytest

from ops import shadowing
from ops.cli import target
from ops.stack import Home
from ops.stack.state import StackState, own_identity


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, an import path to be thrown away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write_state(home: Home) -> None:
    own = own_identity()
    StackState(
        pid=own.pid, started=own.started, database_url="postgresql://stack", broker_url="redis://stack",
        flower_url=None, processes={}, agents="acme.review", directory="/srv/acme",
    ).write(home)  # fmt: skip


def test_a_running_stack_of_this_home_is_meant(here: Path) -> None:
    environ: dict[str, str] = {}
    home = target.home(environ)
    with home.locked():
        write_state(home)
        assert target.point_at_stack(environ) is not None
    assert (environ["ONWARD_DATABASE_URL"], environ["ONWARD_BROKER_URL"]) == (
        "postgresql://stack", "redis://stack",
    )  # fmt: skip
    assert environ["ONWARD_AGENTS"] == "acme.review"
    assert not target.is_explicit(environ)
    assert sys.path[-1] == "/srv/acme"


def test_the_stack_of_a_running_demo_is_found_too(here: Path) -> None:
    environ: dict[str, str] = {}
    home = Home.at(".onward/demo")
    with home.locked():
        write_state(home)
        assert target.point_at_stack(environ) is not None


def test_a_stack_that_ended_is_not_meant(here: Path) -> None:
    environ: dict[str, str] = {}
    home = target.home(environ)
    home.create()
    write_state(home)
    assert target.point_at_stack(environ) is None
    assert environ == {"ONWARD_AGENTS": target.DEFAULT_AGENTS}


def test_servers_that_the_user_names_win(here: Path) -> None:
    environ = {"ONWARD_DATABASE_URL": "postgresql://mine"}
    home = target.home(environ)
    with home.locked():
        write_state(home)
        assert target.point_at_stack(environ) is None
    assert environ == {"ONWARD_DATABASE_URL": "postgresql://mine"}
    assert target.is_explicit(environ)


def test_agents_are_looked_for_last_in_the_current_directory(here: Path) -> None:
    target.point_at_stack({})
    assert sys.path[-1] == str(here)
    assert sys.path.index(str(here)) == len(sys.path) - 1


@pytest.mark.parametrize("name", ["tasks.py", "models/__init__.py", "recovery.py"])
def test_a_module_of_our_name_where_workers_start_is_found(tmp_path: Path, name: str) -> None:
    assert shadowing.shadowed_in(tmp_path) is None
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    problem = shadowing.shadowed_in(tmp_path)
    assert problem is not None
    assert str(tmp_path / name) in problem
    assert str(shadowing.ROOT / name.split("/", maxsplit=1)[0].removesuffix(".py")) in problem


def test_our_own_checkout_shadows_nothing(tmp_path: Path) -> None:
    assert shadowing.shadowed_here() is None
    assert shadowing.shadowed_in(shadowing.ROOT) is None
    (tmp_path / "tasks").mkdir()  # a directory without __init__.py yields to our package
    assert shadowing.shadowed_in(tmp_path) is None
