"""The code of docs/artifacts.md and docs/secrets.md is code that runs."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from tasks import Context, Secret, step, workflow
from tasks.artifacts import Artifact
from tasks.secrets import fill

DOCS = Path(__file__).parents[2] / "docs"


def _blocks(name: str) -> list[str]:
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _run(code: str, **names: Any) -> dict[str, Any]:
    exec(code, names)  # noqa: S102 - our own document
    return names


def test_what_is_put_in_one_step_is_opened_in_another() -> None:
    [code] = _blocks("artifacts.md")
    names = _run(
        code, Artifact=Artifact, Context=Context, step=step, fetch=lambda uri: io.BytesIO(uri.encode()),
        pages_of=lambda file: len(file.read()),
    )  # fmt: skip
    ctx = Context.for_test()
    made = names["scan"](ctx, "file:///scan")
    assert (made.name, made.size, made.media_type) == ("scan.pdf", 12, "application/pdf")
    assert names["count"](ctx, made) == 12


def test_secrets_are_used_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    using, allowing = _blocks("secrets.md")
    clients: list[str] = []
    asked: list[Any] = []

    def answer(request: Any) -> str:
        asked.append(request)
        return "Hello!"

    names = _run(
        using, Client=_Clients(clients),
    )  # fmt: skip
    assert names["invoice"].name == "invoice.create"
    monkeypatch.setenv("ACCESS", "CANARY-access")
    monkeypatch.setenv("HOUSE_CODE", "CANARY-house")
    ctx = Context.for_test(llm=answer)
    assert names["greet"](ctx, "Ms Example", Secret("ACCESS")) == "Hello!"
    assert clients == ["CANARY-access"]
    assert "{{secret:HOUSE_CODE}}" in str(asked)
    assert fill(f"{Secret('HOUSE_CODE')}") == "CANARY-house"
    made = _run(
        f"{allowing}\ndef import_(config: dict):\n    return keep.s(config)\n",
        workflow=workflow, keep=step(_keep),
    )  # fmt: skip
    assert made["import_"].allow_credentials == {"config.session_token"}


class _Clients:
    """What an agent's own library would be: it takes the key when it is made."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = keys

    def __call__(self, token: str) -> "_Clients":
        self._keys.append(token)
        return self


def _keep(ctx: Context, config: dict[str, str]) -> int:
    return len(config)
