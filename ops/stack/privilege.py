"""PostgreSQL refuses to run as root. Two ways to let it run all the same.

First choice is a user namespace in which root has an ordinary number: files stay root's, nothing
changes hands, and a home that only root can enter works. Some containers forbid namespaces; then
PostgreSQL runs as the system's ``nobody``, who must be able to reach its programs and its data.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ops.stack.errors import StackError

_NOBODY = 65534
_NAMESPACE = ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--")


@dataclass(frozen=True, slots=True)
class Privilege:
    """How a PostgreSQL program is run by the present user."""

    prefix: tuple[str, ...] = ()
    account: tuple[int, int] | None = None

    def adopt(self, directory: Path) -> None:
        """Give a data directory to the account that will use it."""
        directory.mkdir(mode=0o700, exist_ok=True)
        if self.account is not None:
            os.chown(directory, *self.account)
            directory.parent.chmod(0o711)  # passable, not readable


def unprivileged(program: Path, *, namespace: bool = True) -> Privilege:
    """The way that works here: checked by running the program, not by looking at settings."""
    if os.geteuid() != 0:
        return Privilege()
    choices = [Privilege(prefix=_NAMESPACE)] if namespace and shutil.which("unshare") else []
    nobody = pwd.getpwnam("nobody")
    choices.append(Privilege(account=(nobody.pw_uid, nobody.pw_gid)))
    for choice in choices:
        if _works(choice, program):
            return choice
    raise StackError(
        f"PostgreSQL does not run as root, and the user `nobody` cannot run {program}: "
        "move the checkout to a place every user can enter, run it as an ordinary user, "
        "or set ONWARD_DATABASE_URL to a server of your own"
    )


def server_environment() -> dict[str, str]:
    """What a server needs of our environment: no PG* or locale setting of the user gets in."""
    kept = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "TZ": "UTC",
        "LC_ALL": "C",
    }


def _works(choice: Privilege, program: Path) -> bool:
    user, group = choice.account or (None, None)
    try:
        answer = subprocess.run(
            [*choice.prefix, str(program), "--version"],
            capture_output=True,
            cwd="/",
            env=server_environment(),
            user=user,
            group=group,
            extra_groups=None if group is None else [],
            check=False,
        )
    except OSError:
        return False
    return answer.returncode == 0
