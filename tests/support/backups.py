"""Backups as operators make them: ``pg_dump`` of a running database, and its restore."""

import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from ops.stack.binaries import postgres_programs


def dump(database_url: str, file: Path) -> Path:
    """A consistent copy of the database as it is now, taken while others go on writing."""
    _run("pg_dump", "--format=custom", f"--file={file}", database_url=database_url)
    return file


def plain(database_url: str) -> bytes:
    """Everything that is in the database, as text."""
    return _run("pg_dump", "--format=plain", database_url=database_url).encode()


def restore(file: Path, database_url: str) -> None:
    """The database as it was then, instead of what it is now; whoever is connected is thrown out."""
    name = urlsplit(database_url).path.removeprefix("/")
    server = database_url.replace("+psycopg", "", 1).removesuffix(name) + "postgres"
    with psycopg.connect(server, autocommit=True) as link:
        for statement in ("DROP DATABASE IF EXISTS {} WITH (FORCE)", "CREATE DATABASE {}"):
            link.execute(sql.SQL(statement).format(sql.Identifier(name)))
    _run("pg_restore", "--exit-on-error", "--dbname", name, str(file), database_url=database_url)


def _run(program: str, *arguments: str, database_url: str) -> str:
    address = urlsplit(database_url)
    environment = {
        **os.environ, "PGHOST": str(address.hostname), "PGPORT": str(address.port),
        "PGUSER": str(address.username), "PGPASSWORD": str(address.password),
        "PGDATABASE": address.path.removeprefix("/"),
    }  # fmt: skip
    done = subprocess.run(
        [postgres_programs() / program, *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{program}: {done.stderr}"
    return done.stdout
