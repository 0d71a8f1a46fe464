"""A pydantic-ai agent as a step."""

from pydantic_ai import Agent

from examples.adapters.desk import INSTRUCTIONS, look_up, open_ticket
from tasks import Context, step, workflow
from tasks.adapters.pydantic_ai import durable, toolset
from tasks.canvas import Canvas

agent = Agent(
    "openai-chat:gpt-5", instructions=INSTRUCTIONS, tools=[look_up], defer_model_check=True
)  # the key is needed when a request leaves, and not here


@step
def answer(ctx: Context, question: str) -> str:
    with durable(ctx, agent, pure={"look_up"}):
        return agent.run_sync(question, toolsets=[toolset(ctx, open_ticket)]).output


@workflow("desk-pydantic-ai", version="1", steps=[answer])
def desk(question: str) -> Canvas:
    return answer.s(question)
