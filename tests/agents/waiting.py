"""Steps that wait for a model and do nothing else, for a worker of threads."""

import os

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

TIMEOUT = 60.0  #: seconds; nothing else ends a thread


def _ask(ctx: Context, *questions: str) -> str:
    answers = []
    with ctx.httpx_client(timeout=TIMEOUT) as client:
        for question in questions:
            message = {"role": "user", "content": question}
            reply = client.post(
                f"{os.environ['ONWARD_LLM_BASE_URL']}/chat/completions",
                json={"model": "gpt-x", "messages": [message]},
            )
            reply.raise_for_status()
            answers.append(reply.json()["choices"][0]["message"]["content"])
    return " ".join(answers)


@step(kind="llm", queue="llm")
def ponder(ctx: Context, number: int) -> str:
    """Two calls: one that is answered at once, and one that takes its time."""
    note(ctx)
    return _ask(ctx, f"quick question {number:03d}", f"slow question {number:03d}")


@step(kind="llm", queue="llm", time_limit=4, soft_time_limit=4)
def hang(ctx: Context, number: int) -> str:
    """May wait much less long than it does."""
    note(ctx)
    return _ask(ctx, f"hanging question {number:03d}")


@workflow("pondering", version="1")
def pondering(number: int) -> Canvas:
    return ponder.s(number)


@workflow("hanging", version="1")
def hanging(number: int) -> Canvas:
    return hang.s(number)
