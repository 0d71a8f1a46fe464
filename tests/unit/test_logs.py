"""Log lines say which run, step and attempt they are about, whoever wrote them."""

import json
import logging
import sys
from collections.abc import Callable

import pytest

from models.settings import settings
from tasks import Context
from tasks.logs import JsonFormatter, TextFormatter, about, formatter


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("acme.review", logging.WARNING, __file__, 1, message, args, None)
    made.created = 1_772_366_400.25
    vars(made).update(extra)
    return made


def test_a_line_carries_its_marks_as_text() -> None:
    line = TextFormatter().format(
        record("read %s", "a.pdf", run_id="run-1", step_key="a b", attempt=2)
    )
    assert line == (
        '2026-03-01T12:00:00.250Z WARNING acme.review read a.pdf run_id=run-1 step_key="a b" attempt=2'
    )


def test_a_line_is_one_json_object() -> None:
    try:
        raise ValueError("bad \x00 byte")
    except ValueError:
        made = record("合同", run_id="run-1")
        made.exc_info = sys.exc_info()
    line = JsonFormatter().format(made)
    fields = json.loads(line)
    assert "\n" not in line
    assert fields["exception"].endswith("ValueError: bad \x00 byte")
    del fields["exception"], fields["pid"]
    assert fields == {
        "time": "2026-03-01T12:00:00.250Z", "level": "WARNING", "logger": "acme.review",
        "message": "合同", "run_id": "run-1",
    }  # fmt: skip


def test_lines_of_others_are_marked_while_a_step_runs() -> None:
    with about(run_id="run-1", step_key="read", attempt=1):
        with about(step_key="write"):
            assert (
                TextFormatter()
                .format(record("x"))
                .endswith(" x run_id=run-1 step_key=write attempt=1")
            )
        assert TextFormatter().format(record("x", attempt=9)).endswith("step_key=read attempt=9")
    assert TextFormatter().format(record("x")).endswith(" x")


def test_the_context_marks_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Context.for_test(run_id="run-7", step_key="read", attempt=3).log.info("reading")
    assert (
        TextFormatter()
        .format(caplog.records[0])
        .endswith("reading run_id=run-7 step_key=read attempt=3")
    )


@pytest.mark.parametrize(("wanted", "kind"), [("text", TextFormatter), ("json", JsonFormatter)])
def test_the_setting_decides(
    wanted: str, kind: Callable[[], logging.Formatter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOG", wanted)
    settings.cache_clear()
    try:
        assert type(formatter()) is kind
    finally:
        monkeypatch.undo()
        settings.cache_clear()
