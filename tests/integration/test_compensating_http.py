"""Undoing what the ready-made HTTP tool did, at the real service."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from models.journal import compensations
from tasks.toolkit import http
from tasks.toolkit.http import HttpTool
from tasks.tools import Effect
from tests.support.fx import Fx
from tests.support.journal import Journal
from tests.support.shelf import failed_run
from tests.support.undone import Scene, a_scene

BY = {"by": "ada", "reason": "wrong customer"}
UNDO = "${FX_URL}/resources/{result.id}"
_numbers = count(1)


@pytest.fixture
def scene(journal: Journal, broker_url: str) -> Iterator[Scene]:
    with a_scene(journal, broker_url) as scene:
        yield scene


@pytest.fixture
def fx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fx]:
    with Fx(tmp_path / "fx") as fx:
        monkeypatch.setenv("FX_URL", fx.url)
        yield fx


def a_tool(**options: Any) -> HttpTool[Any, Any]:
    given: dict[str, Any] = {
        "effect": Effect.IDEMPOTENT, "key_retention": timedelta(hours=1), "url": "${FX_URL}/idempotent/{name}",
        "request": dict[str, str], "result": dict[str, Any], "timeout": timedelta(seconds=5), **options,
    }  # fmt: skip
    return HttpTool(f"http.undone-{next(_numbers)}", **given)


def test_without_anything_to_ask_it_is_simply_undone(scene: Scene, fx: Fx) -> None:
    tool = a_tool(undo=http.Undo(UNDO))
    assert (tool.can_look_up, tool.can_look_up_undo) == (False, False)
    run_id, _ = failed_run((tool, {"name": "plainly"}))
    assert fx.effects("plainly") == 1
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensated", scene.compensation(run_id)
    assert (fx.effects("plainly"), fx.lookups("plainly"), fx.deletes("plainly")) == (0, 0, 1)


def test_with_a_check_it_is_asked_first(scene: Scene, fx: Fx) -> None:
    tool = a_tool(undo=http.Undo(UNDO, check=http.LookUp(url=UNDO, status="status")))
    assert (tool.can_look_up, tool.can_look_up_undo) == (False, True)
    run_id, _ = failed_run((tool, {"name": "kept"}), (tool, {"name": "by-hand"}))
    (resource,) = fx.resources("by-hand")
    fx.remove(resource["id"])
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensated", scene.compensation(run_id)
    assert (fx.deletes("kept"), fx.deletes("by-hand")) == (1, 0)
    assert list(scene.undos(run_id).values()) == [("settled", "lookup"), ("settled", "answer")]


def test_too_many_requests_are_waited_for_as_long_as_it_was_asked(scene: Scene, fx: Fx) -> None:
    run_id, _ = failed_run((a_tool(undo=http.Undo(UNDO)), {"name": "busy"}))
    fx.fault("busy", "429", on="delete", retry_after=40)
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensating"
    assert scene.go(run_id, after=38) == "compensating"
    assert fx.deletes("busy") == 1, "not before its time"
    assert scene.go(run_id, after=3) == "compensated"
    assert fx.deletes("busy") == 2
