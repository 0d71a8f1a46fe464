"""The agent of the example, killed after each of its calls; and one that streams, over a client of its own."""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from examples.adapters.desk import look_up, open_ticket
from examples.adapters.pydantic_ai import answer
from tasks import Context, step
from tasks.adapters.pydantic_ai import durable, toolset
from tests.adapters.killing import killed_after_each_call


@step
async def streamed(ctx: Context, question: str) -> str:
    provider = OpenAIProvider(base_url=os.environ["OPENAI_BASE_URL"], api_key="sk-of-its-own")
    agent = Agent(OpenAIResponsesModel("gpt-5", provider=provider), tools=[look_up])
    with durable(ctx, agent, pure={"look_up"}):
        async with agent.run_stream(question, toolsets=[toolset(ctx, open_ticket)]) as stream:
            return "".join([piece async for piece in stream.stream_text(delta=True)])


desk = killed_after_each_call("pydantic-ai", answer)
other = killed_after_each_call("pydantic-ai-streamed", streamed, when=("each",))
