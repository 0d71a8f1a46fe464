"""Steps that talk to a model server of somebody else's, through ``ctx.llm`` and through a client of their own."""

import os
from enum import StrEnum

from pydantic import BaseModel, Field

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Party(BaseModel):
    #: ASCII: a random model's bytes are seldom valid UTF-8.
    name: str = Field(pattern="^[A-Z][a-z]{2,8}$")
    share: int = Field(ge=0, le=100)


class Risk(BaseModel):
    level: Level
    final: bool
    parties: list[Party] = Field(min_length=1, max_length=2)


@step(kind="llm")
def say(ctx: Context, question: str) -> str:
    """Plain text by ``ctx.llm``."""
    note(ctx)
    return str(ctx.llm.text(question, max_tokens=24))


@step(kind="llm")
def tell(ctx: Context, question: str) -> str:
    """The same as a stream: the text that came while it came."""
    note(ctx)
    heard: list[str] = []
    said = ctx.llm.text(question, on_chunk=heard.append, max_tokens=24)
    note(ctx, "heard", text="".join(heard), said=said)
    return str(said)


@step(kind="llm")
def assess(ctx: Context, question: str) -> Risk:
    """A typed answer."""
    note(ctx)
    risk: Risk = ctx.llm.ask(Risk, question, max_tokens=300)
    return risk


@step(kind="llm")
def post(ctx: Context, question: str) -> str:
    """By hand, over the client that records."""
    note(ctx)
    body = {
        "model": os.environ["ONWARD_LLM_MODEL"],
        "messages": [{"role": "user", "content": question}],
    }
    with ctx.httpx_client(timeout=20) as client:
        reply = client.post(f"{os.environ['ONWARD_LLM_BASE_URL']}/chat/completions", json=body)
        reply.raise_for_status()
        return str(reply.json()["choices"][0]["message"]["content"])


@workflow("saying", version="1")
def saying(question: str) -> Canvas:
    return say.s(question)


@workflow("telling", version="1")
def telling(question: str) -> Canvas:
    return tell.s(question)


@workflow("assessing", version="1")
def assessing(question: str) -> Canvas:
    return assess.s(question)


@workflow("posting", version="1")
def posting(question: str) -> Canvas:
    return post.s(question)
