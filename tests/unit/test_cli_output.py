"""What commands write: JSON in its own types, cells that no terminal chokes on, times, masked passwords."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

import pytest

from models.states import RunState
from ops.cli.asking import actor, confirm
from ops.cli.journal import read_input
from ops.cli.output import emit, plain, say, seconds_between, table
from ops.cli.problems import UsageProblem
from ops.cli.stack import masked


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Thing:
    at: datetime
    colour: Colour
    parts: tuple[int, ...]


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_every_value_becomes_plain_json() -> None:
    thing = Thing(NOON, Colour.RED, (1, 2))
    assert plain({"thing": thing, 7: {Decimal("1.10")}, "none": None, "id": UUID(int=5)}) == {
        "thing": {"at": "2026-03-01T12:00:00+00:00", "colour": "red", "parts": [1, 2]},
        "7": ["1.10"],
        "none": None,
        "id": "00000000-0000-0000-0000-000000000005",
    }
    assert type(plain(RunState.COMPLETED)) is str


def test_json_is_one_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"name": "合同"}], as_json=True, show=lambda: say("not this"))
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == [{"name": "合同"}]


def test_text_of_users_is_shown_as_it_is_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    table(("run", "detail"), [("run-1", "[bold]x[/] list[int] :smile: \x1b[31m"), ("run-2", None)])
    out = capsys.readouterr().out
    assert "[bold]x[/] list[int] :smile: \\x1b[31m" in out
    assert "\x1b" not in out


def test_a_run_id_is_never_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    run_id = "run-" + "f" * 32
    table(("run", "detail"), [(run_id, "word " * 200)])
    assert run_id in capsys.readouterr().out


def test_durations() -> None:
    assert seconds_between(NOON, NOON + timedelta(seconds=1.44)) == "1.4 s"
    assert seconds_between(None, NOON) == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:secret@h:5/d?a=b", "postgresql+psycopg://me:***@h:5/d?a=b"),
        ("redis://:p@127.0.0.1:1/0", "redis://:***@127.0.0.1:1/0"),
        ("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "--input is not JSON"),
        ("[1]", "must be a JSON object by parameter name"),
        ("null", "and is null"),
        ("@/nowhere/at/all.json", "/nowhere/at/all.json cannot be read: No such file"),
        ("[" * 100_000, "--input is not JSON"),
    ],
    ids=["cut", "list", "null", "no file", "deep"],
)
def test_input_that_is_no_object_is_refused(given: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        read_input(given)


def test_input_is_read_from_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("input") / "given.json"
    file.write_text('{"uri": "合同"}', encoding="utf-8")
    assert read_input(f"@{file}") == {"uri": "合同"}


def test_a_program_must_consent_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("Go on?", yes=True, as_json=True)
    with pytest.raises(UsageProblem, match="--yes"):
        confirm("Go on?", yes=False, as_json=True)
    monkeypatch.setenv("USER", "somebody")
    assert (actor(None), actor("me")) == ("somebody", "me")
