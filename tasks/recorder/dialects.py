"""What requests and answers of model services say: which model, how long, what it cost, whether it is whole.

    openai.chat        POST .../chat/completions, .../completions
    openai.responses   POST .../responses
    openai.embeddings  POST .../embeddings
    anthropic.messages POST .../messages

Recognised by the last part of the path, so that every compatible service is read the same way.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tasks.recorder import anthropic_answers, openai_answers
from tasks.recorder.reading import Reading, name
from tasks.recorder.values import Arrived

#: Two of these make a token at least. Of anything else, digits and Chinese among it, each byte may be one.
_WORDS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
MOST = 10**12  #: tokens of one call; who says more is not believed
_AROUND = 256  #: tokens that a service adds around messages and tools
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of answer is read, as JSON or as a stream."""

    name: str
    of_json: Callable[[dict[str, Any]], Reading]
    of_events: Callable[[Any], Reading]
    answers: bool = True  #: False: nothing is generated, so an answer has no length


CHAT = Dialect("openai.chat", openai_answers.chat, openai_answers.chat_stream)
RESPONSES = Dialect("openai.responses", openai_answers.responses, openai_answers.responses_stream)
EMBEDDINGS = Dialect(
    "openai.embeddings", openai_answers.embeddings, openai_answers.chat_stream, answers=False
)
MESSAGES = Dialect(
    "anthropic.messages", anthropic_answers.messages, anthropic_answers.messages_stream
)

_PATHS = (
    (re.compile(r"(^|/)completions$"), CHAT),
    (re.compile(r"(^|/)responses$"), RESPONSES),
    (re.compile(r"(^|/)embeddings$"), EMBEDDINGS),
    (
        re.compile(r"^(?!.*/threads/).*(^|/)messages$"),
        MESSAGES,
    ),  # those of a thread are stored there
)


def of_path(url: str) -> Dialect | None:
    """The dialect that a URL without query is spoken in."""
    return next((dialect for path, dialect in _PATHS if path.search(url)), None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for, as far as its price goes."""

    model: str | None
    tokens_in: int  #: at most
    max_output: int | None  #: of all alternatives together; None: the request does not say
    in_background: bool = False


def wanted(dialect: Dialect, body: bytes) -> Wanted:
    """What a request asks for."""
    asked = as_object(body)
    limits = [limit for field in _LIMITS if (limit := _count(asked.get(field)))]
    longest = min(max(limits) * _alternatives(asked), MOST) if limits else None
    return Wanted(
        model=name(asked.get("model")),
        tokens_in=_most_tokens(body) + _AROUND,
        max_output=longest if dialect.answers else 0,
        in_background=asked.get("background") is True,
    )


def _most_tokens(body: bytes) -> int:
    others = len(body.translate(None, _WORDS))
    return others + (len(body) - others) // 2


def _alternatives(asked: dict[str, Any]) -> int:
    """How many answers are made, of which each may have the whole length."""
    several = max(_count(asked.get(name)) or 1 for name in ("n", "best_of"))
    prompts = asked.get("prompt")  # of legacy completions: texts, or lists of token ids
    if not isinstance(prompts, list) or any(isinstance(one, int) for one in prompts):
        return several
    return several * max(1, len(prompts))


def read(dialect: Dialect, answer: Arrived) -> Reading:
    """What an answer with a status of success says about itself."""
    kind = (answer.header("content-type") or "").lower()
    if "event-stream" in kind:
        reading = dialect.of_events(answer.body)
    else:
        value = _json(answer.body)
        if isinstance(value, dict):
            reading = dialect.of_json(value)
        else:
            reading = Reading("cut" if answer.broken else "malformed")
    if answer.broken and reading.state == "complete" and "event-stream" not in kind:
        return reading.as_state("cut")
    return reading


def fits(answered: str | None, pin: str) -> bool:
    """Whether the model that answered is the one that was pinned; ``gpt-x-*`` stands for its releases.

    ``*`` takes an answer that does not name its model, as those of some servers of one's own.
    """
    if answered is None:
        return pin == "*"
    return answered == pin or ("*" in pin and fnmatchcase(answered, pin))


def as_object(body: bytes) -> dict[str, Any]:
    """A request's body when it is a JSON object, else nothing."""
    value = _json(body)
    return value if isinstance(value, dict) else {}


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _count(value: Any) -> int | None:
    """A number above 0, also where it is written as 100.0."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < math.inf
    return int(value) if whole else None
