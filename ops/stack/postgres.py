"""The PostgreSQL of a home: created once, tuned for a journal, healed after a crash."""

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from ops.stack import binaries, identity
from ops.stack.errors import StackError, StartFailed
from ops.stack.home import Home, write_private
from ops.stack.privilege import Privilege, server_environment, unprivileged
from ops.stack.process import Child, Program, Stage, send

NAME: Final = "postgres"
USER = DATABASE = "onward"

#: A journal's promise is the commit: nothing that makes a commit less durable is ever set here.
OPTIONS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    "log_lock_waits": "on",
}


def data_of(home: Home) -> Path:
    return home.path / "postgres"


@dataclass(frozen=True, slots=True)
class Postgres:
    """The one PostgreSQL cluster of a home."""

    home: Home
    port: int
    options: Mapping[str, str]

    @property
    def data(self) -> Path:
        return data_of(self.home)

    def url(self, database: str = DATABASE, *, driver: str = "postgresql+psycopg") -> str:
        return f"{driver}://{USER}:{self.home.secret(NAME)}@127.0.0.1:{self.port}/{database}"

    def program(self) -> Program:
        """Create the cluster when there is none, and say how to run it."""
        programs = binaries.postgres_programs()
        privilege = unprivileged(programs / "postgres")
        if not (self.data / "PG_VERSION").exists():
            self._create(programs, privilege)
        self._check_version(programs)
        options = {**OPTIONS, **self.options, "port": str(self.port)}
        settings = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        return Program(
            name=NAME,
            argv=(*privilege.prefix, str(programs / "postgres"), "-D", str(self.data), *settings),
            env=server_environment(),
            cwd=Path("/"),
            log=self.home.log(NAME),
            stage=Stage.JOURNAL,
            stop_signal=signal.SIGINT,  # "fast": SIGTERM would wait for every idle client to leave
            death_signal=signal.SIGINT,
            grace=60.0,  # the shutdown checkpoint of a busy journal; a kill costs crash recovery
            account=privilege.account,
            may_start=partial(is_vacant, self.data),
        )

    def is_ready(self) -> bool:
        """Whether it answers; makes sure that the database exists."""
        try:
            with psycopg.connect(
                self.url("postgres", driver="postgresql"), autocommit=True, connect_timeout=3
            ) as server:
                known = server.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
                ).fetchone()
                if known is None:
                    server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError:
            return False
        return True

    def _create(self, programs: Path, privilege: Privilege) -> None:
        """Make the cluster under another name first: one cut short must not pass for a cluster."""
        draft = self.data.with_name("postgres.new")
        password = self.data.with_name("initdb.password")
        shutil.rmtree(draft, ignore_errors=True)
        privilege.adopt(draft)
        write_private(password, self.home.secret(NAME))
        if privilege.account is not None:
            os.chown(password, *privilege.account)
        words = ("-D", str(draft), "-U", USER, f"--pwfile={password}", "--auth=scram-sha-256")
        initdb = Program(
            name="initdb",
            argv=(*privilege.prefix, str(programs / "initdb"), *words, "-E", "UTF8", "--no-locale"),
            env=server_environment(),
            cwd=Path("/"),
            log=self.home.log("initdb"),
            account=privilege.account,
        )
        try:
            if Child(initdb).wait() != 0:
                raise StartFailed(f"initdb could not create {self.data}; see {initdb.log}")
        finally:
            password.unlink()
        draft.rename(self.data)

    def _check_version(self, programs: Path) -> None:
        made_by = int((self.data / "PG_VERSION").read_text())
        if made_by != (found := binaries.postgres_major(programs)):
            raise StackError(
                f"{self.data} was made by PostgreSQL {made_by}, installed is {found}: bring the "
                "data over with pg_dump and pg_restore, install the old version, or set "
                "ONWARD_HOME to a new directory"
            )


def is_vacant(data: Path) -> bool:
    """Whether a data directory is free to be served; what still holds it is asked to leave.

    Only called under the home's lock, so whoever is still in there is a leftover of a killed
    supervisor or the orphaned backends of a killed server. A backend may be writing, so they are
    waited for. Once nobody is in there, a ``postmaster.pid`` naming a live process names a stranger
    that got the old pid; PostgreSQL would refuse to start over it.
    """
    pid_file = data / "postmaster.pid"
    recorded = _recorded_pid(pid_file)
    leftovers = set(identity.processes_in(data))
    if recorded is not None and identity.has_argument(recorded, str(data)):
        leftovers.add(recorded)  # of another user, whose directory we may not look up
    for pid in leftovers:
        send(pid, signal.SIGINT if pid == recorded else signal.SIGQUIT)
    if leftovers:
        return False
    if recorded is not None and identity.Identity.of(recorded) is not None:
        pid_file.unlink()
    return True


def _recorded_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
