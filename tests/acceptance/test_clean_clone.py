"""`make demo` in a clean clone, by an ordinary user, with an interpreter that has none of our packages."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4  # noqa: TID251 - marks processes, identifies nothing of a journal

import pytest

from tests.support.programs import ROOT, is_gone
from tests.support.waiting import wait_until

DOCUMENTS = 8
PATIENCE = 240  #: seconds for the installation and the demo; both took 37 s on two cores at leisure
SYSTEM_PYTHON = "/usr/bin/python3"
CAN_SET_UP = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
MARK = "ONWARD_TEST_CLONE"
#: What would lead a process of the clone back to this checkout, this `make`, or our user's files.
OURS = ("ONWARD_", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV", "PYTEST_", "TMPDIR", "XDG_")
CACHES = ("PIP_CACHE_DIR", "UV_CACHE_DIR")


@dataclass(frozen=True)
class User:
    """Who types the commands, with which interpreter."""

    python: str
    account: pwd.struct_passwd | None  #: None: whoever runs the tests

    def environment(self, directory: Path) -> dict[str, str]:
        """The settings of pip and uv are kept, since packages come from wherever they say."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OURS) and name not in CACHES
        }
        if self.account is None:
            return kept
        home = directory / "home"
        return {**kept, "HOME": str(home), "USER": self.account.pw_name}

    def start(self, *command: str, cwd: Path, env: dict[str, str]) -> "subprocess.Popen[str]":
        account = self.account
        return subprocess.Popen(
            command, cwd=cwd, env=env, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            user=account and account.pw_uid, group=account and account.pw_gid,
            extra_groups=None if account is None else [],
        )  # fmt: skip

    def can_set_up(self) -> bool:
        """Whether this interpreter makes virtual environments for this user."""
        try:
            with self.start(self.python, "-c", CAN_SET_UP, cwd=Path("/"), env={}) as tried:
                tried.communicate(timeout=30)
        except OSError:
            return False
        return tried.returncode == 0


def choose_user() -> User:
    """An ordinary one; ourselves when we are that, or when nobody else can run any interpreter here."""
    interpreters = dict.fromkeys((SYSTEM_PYTHON, _base_interpreter()))
    accounts = [pwd.getpwnam("nobody")] if os.geteuid() == 0 else []
    for account in (*accounts, None):
        for python in interpreters:
            user = User(python, account)
            if user.can_set_up():
                return user
    pytest.fail(f"none of {[*interpreters]} makes virtual environments for us")


def _base_interpreter() -> str:
    """The one that made our own virtual environment."""
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


@dataclass(frozen=True)
class Clone:
    """A clean clone that belongs to its user, and the environment of his terminal."""

    user: User
    path: Path
    env: dict[str, str]

    def processes(self) -> dict[int, str]:
        """Everything that was started here and still runs, whoever its parent is by now."""
        mark = f"{MARK}={self.env[MARK]}".encode()
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    found[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
        return {pid: command for pid, command in found.items() if not is_gone(pid)}

    def make(self, target: str, arguments: str) -> str:
        """What `make` prints; its failure, and its slowness, are the test's."""
        command = ("make", target, f"PYTHON={self.user.python}", f"ARGS={arguments}")
        with self.user.start(*command, cwd=self.path, env=self.env) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE)
            except BaseException:
                self.end()  # else leaving the block waits for `make`
                raise
        assert process.returncode == 0, f"as {self.user}:\n{out}\n{err}"
        return out

    def end(self) -> None:
        """Kill what is left, until nothing starts anything any more."""
        for _ in range(50):
            left = self.processes()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break


@contextmanager
def cloned(user: User) -> Iterator[Clone]:
    """Not below pytest's directory, which other users cannot enter."""
    directory = Path(tempfile.mkdtemp(prefix="onward-tests-clone-"))  # known to .ci/run
    clone = Clone(user, directory / "onward", {**user.environment(directory), MARK: uuid4().hex})
    try:
        _git_clone(directory)
        (directory / "home").mkdir()
        if user.account is not None:
            directory.chmod(0o755)
            for path in directory.rglob("*"):
                os.chown(path, user.account.pw_uid, user.account.pw_gid, follow_symlinks=False)
        yield clone
    finally:
        clone.end()
        shutil.rmtree(directory, ignore_errors=True)


def _git_clone(directory: Path) -> None:
    """Without hard links: a change of owner would reach the objects of this checkout."""
    config = directory / "gitconfig"
    config.write_text("[safe]\n\tdirectory = *\n")  # this checkout may belong to somebody else
    done = subprocess.run(
        ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(directory / "onward")],
        env={**os.environ, "GIT_CONFIG_GLOBAL": str(config)}, timeout=60, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.clone
@pytest.mark.timeout(300)
def test_the_demo_runs_from_a_clean_clone() -> None:
    with cloned(choose_user()) as clone:
        printed = clone.make("demo", f"--documents {DOCUMENTS} --json --seed 3")
        report = json.loads(printed.splitlines()[-1])
        assert report["filings"] == report["completed"] == DOCUMENTS
        wait_until(
            lambda: not clone.processes(),
            timeout=20,
            what="the demo leaves no process",
            details=lambda: str(clone.processes()),
        )
