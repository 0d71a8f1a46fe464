"""Steps that ask models by a plain HTTP client: one by one, gathered, in threads, and under a limit."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

MODEL = "gpt-x"
#: What another deployment asks differently, by the text it is about: ``text=prompt,other=tools``.
CHANGE = "ONWARD_TEST_CHANGE"


def tool_named(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def body_of(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


def said(answer: Any) -> str:
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def url() -> str:
    return f"{os.environ['ONWARD_MODEL_ENDPOINTS']}/chat/completions"


@step
def ask(ctx: Context, text: str, linger: bool = False) -> list[str]:
    """C15: two samples of one prompt, one at another temperature, one with another tool."""
    note(ctx)
    changes = filter(None, os.environ.get(CHANGE, "").split(","))
    changed = dict(change.split("=") for change in changes).get(text)
    prompt = f"{text}, please" if changed == "prompt" else text
    tool = "look_up_all" if changed == "tools" else "look_up"
    with ctx.httpx_client() as client:
        answers = [
            said(client.post(url(), json=body))
            for body in (
                body_of(text),
                body_of(text),
                body_of(prompt, temperature=0.9),
                body_of(text, tools=[tool_named(tool)], tool_choice="none"),
            )
        ]
    note(ctx, "answered", answers=answers)
    while linger and ctx.attempt == 1:
        time.sleep(0.05)  # until the test kills it
    return answers


@step
def report(ctx: Context, answers: list[Any]) -> int:
    note(ctx)
    return len(answers)


@workflow("sampling", version="1")
def sampling(text: str, linger: bool = False) -> Canvas:
    return ask.s(text, linger) | report.s()


@step
async def gather(ctx: Context, text: str, members: int) -> list[list[str]]:
    """The same question from several tasks at once, twice each."""
    note(ctx)
    async with ctx.async_httpx_client() as client:

        async def member(number: int) -> list[str]:
            answers = []
            for turn in range(2):
                answers.append(said(await client.post(url(), json=body_of(text))))
                note(ctx, "answer", who=f"{number}.{turn}", text=answers[-1])
            return answers

        return list(await asyncio.gather(*(member(number) for number in range(members))))


@step
def spread(ctx: Context, text: str, members: int) -> list[list[str]]:
    """The same from threads, each in a scope of its own."""
    note(ctx)

    def member(number: int) -> list[str]:
        answers = []
        with ctx.scope(f"member-{number}"), ctx.httpx_client() as client:
            for turn in range(2):
                answers.append(said(client.post(url(), json=body_of(text))))
                note(ctx, "answer", who=f"{number}.{turn}", text=answers[-1])
        return answers

    with ThreadPoolExecutor(members) as pool:
        return list(pool.map(member, range(members)))


@workflow("gathering", version="1")
def gathering(text: str, members: int = 3) -> Canvas:
    return gather.s(text, members) | report.s()


@workflow("spreading", version="1")
def spreading(text: str, members: int = 3) -> Canvas:
    return spread.s(text, members) | report.s()


@step
def once(ctx: Context, text: str) -> str:
    note(ctx)
    with ctx.httpx_client() as client:
        return said(client.post(url(), json=body_of(text)))


@workflow("limited", version="1")
def limited(text: str) -> Canvas:
    return once.s(text)
