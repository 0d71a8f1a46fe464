"""What the steps of test agents do to the outside world: effects, model calls, and notes of their bodies."""

import http.client
import json
import os
from urllib.parse import urlsplit

from tasks import Context


def create(ctx: Context, name: str, *, mode: str = "idempotent", body: object = None) -> str:
    """Make one effect and return its resource id. ``name`` is the business intent."""
    headers = {"Idempotency-Key": ctx.idempotency_key(name)} if mode == "idempotent" else {}
    return str(_post(f"/{mode}/{name}", body or {"name": name}, headers)["resource_id"])


def ask(name: str) -> str:
    """One call of the model."""
    return str(_post(f"/llm/{name}", {"prompt": name}, {})["text"])


def note(ctx: Context, what: str = "body", **facts: object) -> None:
    """Write down, outside the journal, that this body started: one line, one write, no buffer."""
    line = {
        "what": what, "run_id": ctx.run_id, "step_key": ctx.step_key, "attempt": ctx.attempt,
        "pid": os.getpid(), "parent": os.getppid(), **facts,
    }  # fmt: skip
    file = os.open(os.environ["ONWARD_TEST_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def earlier_notes(ctx: Context, what: str) -> list[dict[str, object]]:
    """What earlier attempts of this step wrote down."""
    with open(os.environ["ONWARD_TEST_NOTES"]) as file:
        found = [json.loads(line) for line in file]
    own = (ctx.run_id, ctx.step_key, what)
    return [one for one in found if (one["run_id"], one["step_key"], one["what"]) == own]


def _post(path: str, body: object, headers: dict[str, str]) -> dict[str, object]:
    address = urlsplit(os.environ["ONWARD_TEST_FX"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=90)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        answer: dict[str, object] = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"the outside world refused {path}: {response.status} {answer}")
        return answer
    finally:
        connection.close()
