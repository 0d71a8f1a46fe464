"""Agents that use secrets, and agents whose every error gives one away."""

import json
import logging
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import httpx2
from pydantic import BaseModel

from tasks import Context, Effect, Secret, step, workflow
from tasks.canvas import Canvas
from tasks.toolkit.http import HttpTool, LookUp
from tests.agents.outside import note

MODEL_KEY, HOUSE_CODE, TOOL_TOKEN = Secret("MODEL_KEY"), Secret("HOUSE_CODE"), Secret("TOOL_TOKEN")

_log = logging.getLogger("agent.secretive")


class Order(BaseModel):
    name: str
    note: str = ""
    access: Secret | None = None


place = HttpTool(
    "secretive.place", effect=Effect.QUERYABLE, url="${ONWARD_TEST_FX}/plain/{name}",
    headers={"Authorization": "Bearer {{secret:TOOL_TOKEN}}"}, request=Order,
    lookup=LookUp(
        url="${ONWARD_TEST_FX}/resources?name={name}", items="items", match={"key": "{key}"}
    ),
    max_request_lifetime=timedelta(seconds=1), consistency_window=timedelta(seconds=0),
)  # fmt: skip

#: A service that repeats in its answer what it was sent.
echo = HttpTool(
    "secretive.echo", effect=Effect.PURE, url="${ONWARD_TEST_ECHO}/{status}", method="POST",
    headers={"Authorization": TOOL_TOKEN}, answers={500: "refused"},
)  # fmt: skip


@step(max_retries=3, retry_backoff=0.2)
def consult(ctx: Context, name: str, access: Secret | None) -> dict[str, Any]:
    """A model that is told a secret and repeats it, and an order with a key in its header, or in its body too."""
    note(ctx)
    with ctx.httpx_client(headers={"Authorization": f"Bearer {MODEL_KEY}"}, timeout=30) as client:
        answer = client.post(
            f"{os.environ['ONWARD_TEST_MODELS']}/chat/completions",
            json={
                "model": "model-1",
                "messages": [{"role": "user", "content": f"{name}: our code is {HOUSE_CODE}"}],
            },
        ).json()
    said = answer["choices"][0]["message"]["content"]
    _log.warning("The code is %s, the key %s", HOUSE_CODE.reveal(), MODEL_KEY.reveal())
    ctx.progress(1, 2, f"the code is {HOUSE_CODE.reveal()}")
    order = Order(name=name)
    if access is not None:
        order = Order(name=name, note=f"code {access.reveal()}", access=access)
    placed: dict[str, Any] = ctx.call(place, order)
    return {"said": said, "id": placed["id"], "code": HOUSE_CODE.reveal()}


@step
def report(ctx: Context, consulted: dict[str, Any]) -> dict[str, Any]:
    note(ctx)
    return consulted


@workflow("secretive", version="1")
def _secretive(name: str, access: Secret | None = None) -> Canvas:
    return consult.s(name, access) | report.s()


class Settings(BaseModel):
    limit: int


def _chained(value: str) -> None:
    try:
        credentials = {"key": value}
        raise KeyError(f"no such key: {credentials}")
    except KeyError as error:
        raise RuntimeError("the account could not be opened") from error


def _validated(value: str) -> None:
    Settings.model_validate(
        {"limit": f"a rather long text in which {value} stands, cut by pydantic"}
    )


def _subprocess(value: str) -> None:
    code = "import sys; print(sys.argv[1], file=sys.stderr); sys.exit(3)"
    done = subprocess.run(
        [sys.executable, "-c", code, value], capture_output=True, text=True, check=False
    )
    raise RuntimeError(f"the tool said: {done.stderr}")


def _called(value: str) -> None:
    subprocess.run([sys.executable, "-c", "raise SystemExit(3)", value], check=True)


def _transport(value: str) -> None:
    httpx2.get("http://127.0.0.1:1/", headers={"Authorization": value}, params={"key": value})


def _exit(value: str) -> None:
    sys.exit(f"cannot go on with {value}")


def _logged(value: str) -> None:
    print(f"printed {value}")  # noqa: T201 - what people do
    _log.warning("json %s", json.dumps({"Authorization": f"Bearer {value}"}))
    try:
        raise ValueError(value)
    except ValueError:
        _log.exception("caught, and logged with its traceback")
    raise RuntimeError("done")


def _grouped(value: str) -> None:
    raise ExceptionGroup("two of them", [ValueError(value), OSError("another")])


WAYS = {
    "chained": _chained, "validated": _validated, "subprocess": _subprocess, "called": _called,
    "transport": _transport, "exit": _exit, "logged": _logged, "grouped": _grouped,
}  # fmt: skip


@step
def give_away(ctx: Context, way: str) -> dict[str, Any]:
    note(ctx)
    value = TOOL_TOKEN.reveal()
    ctx.progress(1, 1, f"about to fail with {value}")
    if way == "echo":
        ctx.call(echo, {"status": 500})
    if way == "returned":
        echoed = ctx.call(echo, {"status": 200})
        return {"echoed": echoed, "value": value, "in text": f"it is {value}!"}
    if way == "large":
        return {"large": [f"it is {value}!"] * 10_000}
    WAYS[way](value)
    return {}


@step(max_retries=1, default_retry_delay=0.1)
def give_away_twice(ctx: Context, way: str) -> None:
    note(ctx)
    WAYS[way](TOOL_TOKEN.reveal())


@workflow("giving-away", version="1")
def _giving_away(way: str) -> Canvas:
    return give_away.s(way) if way != "twice" else give_away_twice.s("chained")


@workflow("with-config", version="1", allow_credentials=("config.session_token",))
def _with_config(config: dict[str, Any]) -> Canvas:
    return keep.s(config)


@step
def keep(ctx: Context, config: dict[str, Any]) -> int:
    note(ctx)
    return len(config)
