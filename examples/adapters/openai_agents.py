"""An agent of the OpenAI Agents SDK as a step."""

from agents import Agent, Runner, function_tool

from examples.adapters.desk import INSTRUCTIONS, look_up, open_ticket
from tasks import Context, step, workflow
from tasks.adapters.openai_agents import as_function_tool, run_config
from tasks.canvas import Canvas

agent = Agent(name="desk", model="gpt-5", instructions=INSTRUCTIONS, tools=[function_tool(look_up)])


@step
def answer(ctx: Context, question: str) -> str:
    able = agent.clone(tools=[*agent.tools, as_function_tool(ctx, open_ticket)])
    config = run_config(ctx, pure={"look_up"})
    return str(Runner.run_sync(able, question, run_config=config).final_output)


@workflow("desk-openai-agents", version="1", steps=[answer])
def desk(question: str) -> Canvas:
    return answer.s(question)
