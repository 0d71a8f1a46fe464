"""Start one program so that it is told when its supervisor dies, then become it.

Run as a file (``python -I -S launch.py PARENT SIGNAL ACCOUNT PROGRAM ...``) rather than as a
``preexec_fn``: the supervisor has threads (live view, database pools), and running Python between
fork and exec of a threaded process can deadlock.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent, death_signal, account, *argv = arguments
    if account != "-":
        uid, gid = (int(part) for part in account.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)  # before the request below: a change of user clears it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before the kernel knew of our wish
            sys.exit(f"{argv[0]} not started: its supervisor {parent} is gone")
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
