"""``onward up`` and ``onward down``: the local stack in the foreground, or detached."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ops.cli import local, target
from ops.cli.local import UserStack
from ops.cli.output import Json, emit, facts, note, say
from ops.stack import Home, StackError
from ops.stack.services import FLOWER_USER
from ops.stack.state import Stopped, stop
from ops.stack.stopping import StopRequests


def up(
    *,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes for steps.")] = 2,
    concurrency: Annotated[int, typer.Option(min=1, help="Steps at a time in each worker.")] = 2,
    agents: Annotated[
        str | None, typer.Option(help="Packages with workflows, comma-separated.")
    ] = None,
    beats: Annotated[int, typer.Option(min=0, help="Schedulers; two are harmless.")] = 2,
    flower: Annotated[bool, typer.Option(help="Start Flower.")] = True,
    metrics: Annotated[bool, typer.Option(help="Serve metrics for Prometheus.")] = True,
    detach: Annotated[bool, typer.Option("--detach", help="Return once it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Start everything on this machine: Postgres, Valkey, workers, recovery, Flower."""
    agents = target.agents() if agents is None else agents
    layout = local.prepare(
        workers=workers, concurrency=concurrency, agents=agents, beats=beats, flower=flower,
        metrics=metrics,
    )  # fmt: skip
    home = target.home()
    if detach:
        _detach(home, as_json=as_json)
        return
    with StopRequests(home.log("onward")) as requests, local.start(home, layout, requests) as stack:
        answer = _addresses(stack)
        emit(answer, as_json=as_json, show=lambda: _announce(answer, detached=False))
        stack.run()
        note("Stopping: running steps get up to 25 s; Ctrl-C again does not wait for them.")


def down(
    now: Annotated[bool, typer.Option("--now", help="Do not wait for running steps.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the local stack of this home. Nothing is lost: the next start goes on."""
    home = target.home()
    found = stop(home, now=now)
    sentence = {
        Stopped.STOPPED: f"The stack of {home.path} is stopped.",
        Stopped.NOT_RUNNING: f"Nothing runs in {home.path}.",
        Stopped.LEFTOVERS_ENDED: f"The stack of {home.path} had been killed; its leftovers are ended.",
    }[found]
    answer = {"home": str(home.path), "stopped": found}
    emit(answer, as_json=as_json, show=lambda: say(sentence))


def _detach(home: Home, *, as_json: bool) -> None:
    """Run the same command again in a session of its own; its first line says that it serves."""
    home.create()
    words = [word for word in sys.argv[1:] if word not in ("--detach", "--json")]
    command, environment = local.python(*words, "--json")
    with home.log("onward").open("a") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            start_new_session=True, text=True,
        )  # fmt: skip
    assert process.stdout is not None  # noqa: S101 - asked for above
    line = process.stdout.readline()
    if not line:
        raise StackError(f"The stack did not start ({_last_line(home)}); see {home.log('onward')}")
    answer = json.loads(line)
    emit(answer, as_json=as_json, show=lambda: _announce(answer, detached=True))


def _last_line(home: Home) -> str:
    lines = home.log("onward").read_text(errors="replace").splitlines()
    return lines[-1].removeprefix("onward: ") if lines else "without a word"


def _addresses(stack: UserStack) -> dict[str, object]:
    home = stack.home
    return {
        "home": str(home.path),
        "database_url": masked(stack.servers.database_url),
        "broker_url": masked(stack.servers.broker_url),
        "flower_url": stack.flower_url,
        "flower_user": FLOWER_USER if stack.flower_url else None,
        "flower_password_file": str(home.path / "secrets" / "flower") if stack.flower_url else None,
        "metrics_url": stack.metrics_url,
        "agents": stack.layout.agents,
        "example_services": list(stack.companions),
        "logs": str(home.path / "logs"),
        "pids": dict(stack.supervisor.pids),
    }


def _announce(answer: dict[str, object], *, detached: bool) -> None:
    facts((
        ("Flower", answer["flower_url"]),
        ("  sign in", f"{answer['flower_user']}, password in {answer['flower_password_file']}"
         if answer["flower_url"] else None),
        ("metrics", answer["metrics_url"]),
        ("Postgres", answer["database_url"]), ("Valkey", answer["broker_url"]),
        ("agents", answer["agents"]), ("logs", answer["logs"]),
        ("passwords", str(Path(str(answer["home"])) / "secrets")),
    ))  # fmt: skip
    if answer["example_services"]:
        say(
            "The example's own model server and registry run beside it: set ONWARD_LLM_BASE_URL for a real LLM."
        )
    say(
        "Stop it with `onward down`."
        if detached
        else "Running. Stop with Ctrl-C, or `onward down` elsewhere."
    )


def masked(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:***@{place}").geturl()
