"""Every command answers programs too."""

from collections.abc import Iterator

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from ops.cli import run
from ops.cli.app import app


def commands(command: object, *above: str) -> Iterator[tuple[str, ...]]:
    """The words of every command of the tree, the name of the program left out."""
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from commands(below, *above, name)
    else:
        assert isinstance(command, TyperCommand)
        yield above


COMMANDS = sorted(commands(typer.main.get_command(app)))


def test_the_tree_was_walked_to_its_leaves() -> None:
    assert {("demo",), ("up",), ("runs", "retry"), ("batch", "watch"), ("db", "check")} <= {
        *COMMANDS
    }


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_json_is_an_option_of_every_command(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """As the user would ask: ``demo`` hands its words to a command of its own."""
    assert run([*words, "--help"]) == 0
    assert " --json " in capsys.readouterr().out
