"""The command line. ``main`` is the entry point; each module beside it holds the commands of one subject.

Nothing of Onward is imported here before it is certain that our names lead to our packages.
"""

import sys
from collections.abc import Sequence

from ops import shadowing


def main() -> None:
    """``onward``: run one command and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    if problem := shadowing.shadowed_here():
        sys.stderr.write(f"onward: {problem}\n")
        return 1
    from ops.cli.boundary import run_command  # noqa: PLC0415 - only now is it certain to be ours

    return run_command(arguments)
