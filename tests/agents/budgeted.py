"""Steps that pay for what they ask, and a process that dies wherever a test says so, each time."""

import os
from pathlib import Path

from models import failpoints
from models.failpoints import FailPoint
from tasks import Budget, Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

MODEL = "gpt-x"
MOST = 100  #: tokens that an answer may have
KILLS = "ONWARD_TEST_KILLS"  #: a directory: file ``L2`` with a number says how often to die there


def body_of(text: str, model: str = MODEL) -> dict[str, object]:
    """The request that ``think`` makes."""
    return {
        "model": model, "max_tokens": MOST, "messages": [{"role": "user", "content": text}],
    }  # fmt: skip


def ask(ctx: Context, text: str, model: str) -> str:
    """One call of a model."""
    with ctx.httpx_client(base_url=os.environ["ONWARD_LLM_BASE_URL"]) as client:
        answer = client.post("chat/completions", json=body_of(text, model))
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


@step
def think(ctx: Context, text: str, times: int, model: str) -> list[str]:
    """Ask one after the other, and say what was left each time."""
    note(ctx)
    answers = []
    for number in range(times):
        answers.append(ask(ctx, f"{text} #{number}", model))
        left = ctx.budget.left
        note(ctx, "left", tokens=left.tokens, cost=str(left.cost), calls=left.calls)
    return answers


@step
def close(ctx: Context, answers: list[str]) -> int:
    """Something that costs nothing."""
    note(ctx)
    return len(answers)


@workflow("thrifty", version="1", budget=Budget(calls=5))
def thrifty(text: str, times: int = 1, model: str = MODEL) -> Canvas:
    return think.s(text, times, model) | close.s()


@workflow("spender", version="1")
def spender(text: str, times: int = 1, model: str = MODEL) -> Canvas:
    return think.s(text, times, model) | close.s()


def _choose(point: FailPoint, step_name: str | None, _about: str | None) -> str | None:
    """Die here as often as the test says, whichever process comes by."""
    ordered = Path(os.environ[KILLS]) / point.value
    if step_name is None or not step_name.endswith(".think") or not ordered.exists():
        return None
    for number in range(int(ordered.read_text())):
        try:
            ordered.with_name(f"{point.value}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return "kill"
    return None


if KILLS in os.environ:
    failpoints.choose_with(_choose)
