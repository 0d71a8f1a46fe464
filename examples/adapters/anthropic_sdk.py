"""The plain Anthropic SDK in an ``async`` step: the loop is written by hand."""

from typing import Any

from examples.adapters.desk import INSTRUCTIONS, Order, Ticket, look_up, open_ticket
from tasks import Context, step, workflow
from tasks.adapters.anthropic_sdk import async_anthropic_client
from tasks.canvas import Canvas

ARGUMENTS = {"look_up": Order.model_json_schema(), "desk_open_ticket": Ticket.model_json_schema()}
TOOLS: Any = [{"name": name, "input_schema": arguments} for name, arguments in ARGUMENTS.items()]


@step
async def answer(ctx: Context, question: str) -> str:
    chat: list[Any] = [{"role": "user", "content": question}]
    messages = async_anthropic_client(ctx).messages
    while True:
        said = await messages.create(
            model="claude-sonnet-5",
            max_tokens=1024,
            system=INSTRUCTIONS,
            messages=chat,
            tools=TOOLS,
        )
        blocks = [block.to_dict() for block in said.content]
        chat.append({"role": "assistant", "content": blocks})
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return "".join(str(block.get("text", "")) for block in blocks)
        chat.append({"role": "user", "content": [await _result(ctx, call) for call in calls]})


async def _result(ctx: Context, call: dict[str, Any]) -> dict[str, Any]:
    if call["name"] == "look_up":
        content = look_up(Order.model_validate(call["input"]).order)
    else:
        ticket = Ticket.model_validate(call["input"])
        content = str(await ctx.acall(open_ticket, ticket, name=call["id"]))
    return {"type": "tool_result", "tool_use_id": call["id"], "content": content}


@workflow("desk-anthropic-sdk", version="1", steps=[answer])
def desk(question: str) -> Canvas:
    return answer.s(question)
