"""``python -m ops.demo``: the same as ``onward demo``."""

import typer

from ops.demo.command import demo_command

if __name__ == "__main__":
    typer.run(demo_command)
