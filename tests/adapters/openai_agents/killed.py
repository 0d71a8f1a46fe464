"""The agent of the example, killed after each of its calls; and one that streams chat completions."""

from agents import Runner

from examples.adapters.desk import open_ticket
from examples.adapters.openai_agents import agent, answer
from tasks import Context, step
from tasks.adapters.openai_agents import as_function_tool, run_config
from tests.adapters.killing import killed_after_each_call


@step
async def streamed(ctx: Context, question: str) -> str:
    able = agent.clone(tools=[*agent.tools, as_function_tool(ctx, open_ticket)])
    config = run_config(ctx, pure={"look_up"}, use_responses=False)
    stream = Runner.run_streamed(able, question, run_config=config)
    async for _ in stream.stream_events():
        pass
    return str(stream.final_output)


desk = killed_after_each_call("openai-agents", answer)
other = killed_after_each_call("openai-agents-streamed", streamed, when=("each",))
