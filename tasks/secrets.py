"""Secrets for agents: referred to by name, looked up where they are used, recorded nowhere.

    KEY = Secret("BILLING_KEY")

    charge = HttpTool("charge", url="https://billing.example/charges",
                      headers={"Authorization": "Bearer {{secret:BILLING_KEY}}"}, ...)

    @step
    def greet(ctx: Context, customer: str) -> str:
        return ctx.llm.text(f"Our house code is {Secret('HOUSE_CODE')}. Greet {customer}.")

In a text an agent makes, a reference stands as ``{{secret:HOUSE_CODE}}``: recorded and digested so, and filled in
by what sends it. Only names that the agent's own code has put into texts are filled in: a document, or a model's
answer, that spells ``{{secret:BILLING_KEY}}`` gets nothing.
"""

import json
import re
from typing import Literal, TypeAlias
from urllib.parse import quote

from models.secret import Secret, SecretMissing, SecretRefused, SecretsCommandFailed, may_fill

__all__ = [
    "Secret", "SecretMissing", "SecretRefused", "SecretsCommandFailed", "declare_placeholders", "fill",
]  # fmt: skip

Within: TypeAlias = Literal["text", "json", "url"]

_PLACEHOLDER = re.compile(r"\{\{secret:([A-Za-z_][A-Za-z0-9_.-]{0,127})\}\}")
#: Clients escape braces and colons in addresses.
_IN_URL = re.compile(
    r"(?:\{|%7B){2}secret(?::|%3A)([A-Za-z_][A-Za-z0-9_.-]{0,127})(?:\}|%7D){2}", re.IGNORECASE
)


def declare_placeholders(*names: str) -> None:
    """Let ``{{secret:NAME}}`` be filled in where it stands in texts that were not made with ``Secret`` here.

    For prompts that are read from files, or made by another step.
    """
    for name in names:
        str(Secret(name))


def fill(text: str, *, within: Within = "text") -> str:
    """``text`` as it is sent, with the values of its placeholders; never to be recorded.

    ``within``: what the values are escaped for. Raises ``SecretMissing``.
    """
    if "secret" not in text:
        return text
    pattern = _IN_URL if within == "url" else _PLACEHOLDER
    return pattern.sub(lambda found: _value(found, within), text)


def _value(found: "re.Match[str]", within: Within) -> str:
    name = found[1]
    if not may_fill(name):
        return found[0]
    value = Secret(name).reveal()
    match within:
        case "json":
            return json.dumps(value)[1:-1]
        case "url":
            return quote(value, safe="")
        case "text":
            return value
