"""The plain OpenAI SDK in a step: the loop is written by hand."""

from typing import Any

from examples.adapters.desk import INSTRUCTIONS, Order, Ticket, look_up, open_ticket
from tasks import Context, step, workflow
from tasks.adapters.openai_sdk import openai_client
from tasks.canvas import Canvas

ARGUMENTS = {"look_up": Order.model_json_schema(), "desk_open_ticket": Ticket.model_json_schema()}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": arguments}}
    for name, arguments in ARGUMENTS.items()
]


@step
def answer(ctx: Context, question: str) -> str:
    chat: list[Any] = [{"role": "system", "content": INSTRUCTIONS}]
    chat.append({"role": "user", "content": question})
    completions = openai_client(ctx).chat.completions
    while True:
        said = completions.create(model="gpt-5", messages=chat, tools=TOOLS).choices[0].message
        chat.append(said.to_dict())
        if not said.tool_calls:
            return said.content or ""
        chat += [_result(ctx, call) for call in said.tool_calls]


def _result(ctx: Context, call: Any) -> dict[str, Any]:
    arguments = call.function.arguments
    if call.function.name == "look_up":
        content = look_up(Order.model_validate_json(arguments).order)
    else:
        content = str(ctx.call(open_ticket, Ticket.model_validate_json(arguments), name=call.id))
    return {"role": "tool", "tool_call_id": call.id, "content": content}


@workflow("desk-openai-sdk", version="1", steps=[answer])
def desk(question: str) -> Canvas:
    return answer.s(question)
