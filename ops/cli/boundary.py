"""From arguments to an exit code: the deployment is chosen, the command is run, errors become sentences."""

import logging
import os
import sys
from collections.abc import Sequence

import typer.main

from models import redaction
from ops.cli import problems, target


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line. Only an error that nobody foresaw is raised."""
    try:
        target.point_at_stack()
        _know_secrets()
        from ops.cli.app import app  # noqa: PLC0415 - its modules read settings

        _log_to_stderr()
        typer.main.get_command(app)(args=list(arguments), prog_name="onward")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        explained = problems.explain(error)
        if explained is None or os.environ.get("ONWARD_TRACEBACK"):
            raise
        sys.stderr.write(f"onward: {explained[0]}\n")
        return explained[1]
    return 0


def _know_secrets() -> None:
    """The operator's secrets appear in no answer, wherever they come from: a database's words, a traceback."""
    from models.secret import learn_from_environment  # noqa: PLC0415 - reads settings
    from ops.cli.output import Redacting  # noqa: PLC0415

    learn_from_environment()
    if redaction.is_active():
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, Redacting):
                setattr(sys, name, Redacting(stream))


def _log_to_stderr() -> None:
    """Warnings of the libraries below; answers alone go to stdout."""
    from tasks.logs import formatter  # noqa: PLC0415 - reads settings

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
