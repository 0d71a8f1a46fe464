"""Secrets for agents: referred to by name, looked up where they are used, recorded nowhere.

    KEY = Secret("BILLING_KEY")

    charge = HttpTool("charge", url="https://billing.example/charges",
                      headers={"Authorization": "Bearer {{secret:BILLING_KEY}}"}, ...)

    @step
    def greet(ctx: Context, customer: str) -> str:
        return ctx.llm.text(f"Our house code is {Secret('HOUSE_CODE')}. Greet {customer}.")

In a text an agent makes, a reference stands as ``{{secret:HOUSE_CODE}}``: recorded and digested so, and filled in
by what sends it. Only what the agent's own code has made with ``Secret`` is filled in, known by a mark that the
process has drawn for itself: a document, or a model's answer, that spells ``{{secret:BILLING_KEY}}`` gets nothing,
whatever else this process has used before. Written out, a placeholder is taken in headers that carry credentials, as
templates of tools take it, since only code writes those.
"""

import json
import re
from typing import Literal, TypeAlias
from urllib.parse import quote

from models.secret import (
    MARK,
    Secret,
    SecretMissing,
    SecretRefused,
    SecretsCommandFailed,
    unmarked,
)  # fmt: skip

__all__ = [
    "Secret", "SecretMissing", "SecretRefused", "SecretsCommandFailed", "fill", "fill_header", "with_secrets",
]  # fmt: skip

Within: TypeAlias = Literal["text", "json", "url"]

_NAME = "([A-Za-z_][A-Za-z0-9_.-]{0,127})"
_PLACEHOLDER = re.compile(r"\{\{secret:" + _NAME + r"\}\}")
_MADE_HERE = re.compile(_PLACEHOLDER.pattern + re.escape(MARK))
#: Clients escape braces and colons in addresses.
_IN_URL = re.compile(
    r"(?:\{|%7B){2}secret(?::|%3A)" + _NAME + r"(?:\}|%7D){2}" + re.escape(MARK), re.IGNORECASE
)
#: ``Authorization``, ``X-Api-Key``, ``PRIVATE-TOKEN`` and the like.
_CREDENTIAL = re.compile(
    r"^(?!idempotency|sec-)(?:.*[-_])?(?:authorization|auth|cookie|apikey|key|token|secret|password|signature)"
    r"(?:[-_]|$)",
    re.IGNORECASE,
)


def with_secrets(text: str, *names: str) -> str:
    """A text of the agent's own, its ``{{secret:NAME}}`` of these names to be filled in where it is sent.

    For prompts that are read from files, or made by another step; never for what holds a document.
    """
    allowed = {name: str(Secret(name)) for name in names}
    return _PLACEHOLDER.sub(lambda found: allowed.get(found[1], found[0]), unmarked(text))


def fill(text: str, *, within: Within = "text") -> str:
    """``text`` as it is sent, with the values of the placeholders made here; never to be recorded.

    ``within``: what the values are escaped for. Raises ``SecretMissing``.
    """
    if MARK not in text:
        return text
    pattern = _IN_URL if within == "url" else _MADE_HERE
    return unmarked(pattern.sub(lambda found: _value(found[1], within), text))


def fill_header(name: str, text: str) -> str:
    """The value of a header, as it is sent. Raises ``SecretMissing``, ``SecretRefused``.

    A placeholder that stays would be sent as a key that nobody has, or is a document's attempt.
    """
    if "{{secret:" not in text:
        return fill(text)
    if _CREDENTIAL.match(name):
        return _PLACEHOLDER.sub(lambda found: _value(found[1], "text"), unmarked(text))
    made_here = fill(text)
    if found := _PLACEHOLDER.search(_MADE_HERE.sub("", text)):
        raise SecretRefused(
            f"The header {name} of a request has {found[0]} written out, which is filled in where a header carries "
            f"credentials (Authorization, X-Api-Key). Nothing was sent. If the agent's code wrote it, say "
            f'f"{{Secret({found[1]!r})}}" in its place; if a document did, leave it out. Then `onward runs retry`'
        )
    return made_here


def _value(name: str, within: Within) -> str:
    value = Secret(name).reveal()
    match within:
        case "json":
            return json.dumps(value)[1:-1]
        case "url":
            return quote(value, safe="")
        case "text":
            return value
