"""One question to an OpenAI-compatible endpoint, one typed answer or a clear refusal.

Works with any such endpoint: some ignore ``response_format``, some refuse it (then set
``ONWARD_LLM_RESPONSE_FORMAT``), some wrap JSON in a code fence. The key comes from the environment
for each process and is neither recorded nor logged.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from openai import APIConnectionError, APIStatusError, DefaultHttpxClient, OpenAI, OpenAIError
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.chat.completion_create_params import ResponseFormat
from pydantic import BaseModel, ValidationError

from examples.contract_review.errors import (
    AnswerRefused,
    EndpointRefused,
    EndpointUnavailable,
)
from examples.contract_review.prompts import Prompt

ATTEMPT_TIMEOUT = (
    90.0  #: seconds for one HTTP request; a long answer of a slow endpoint takes a minute
)
CLIENT_RETRIES = (
    2  #: in place, for connection errors, 429 and 5xx, honouring Retry-After; then the step's own
)
STEP_TIME_LIMIT = 300  #: seconds; more than all tries of one call with their pauses

A = TypeVar("A", bound=BaseModel)


class Ask(Protocol):
    """How the analysing functions reach the LLM."""

    def __call__(self, answer: type[A], prompt: Prompt, /) -> A: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to ask, read from the environment."""

    base_url: str
    model: str
    api_key: str = field(repr=False)  #: never in a log or an error's text
    response_format: str
    labelled: bool  #: name run and step in headers; only our own model server is told them


def endpoint(environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint this process uses, or a sentence that says what to set."""
    base_url = environ.get("ONWARD_LLM_BASE_URL", "")
    if not base_url:
        raise EndpointRefused(
            "no LLM is configured: set ONWARD_LLM_BASE_URL to an OpenAI-compatible endpoint, for "
            "instance that of `python -m examples.contract_review.model_server`"
        )
    return Endpoint(
        base_url=base_url,
        model=environ.get("ONWARD_LLM_MODEL") or "gpt-4o-mini",
        api_key=environ.get("ONWARD_LLM_API_KEY") or environ.get("OPENAI_API_KEY") or "none",
        response_format=environ.get("ONWARD_LLM_RESPONSE_FORMAT") or "json_schema",
        labelled=environ.get("ONWARD_LLM_LABELS") == "1",
    )


def asker(*, run: str, step: str) -> Ask:
    """An ``Ask`` that belongs to one step."""
    target = endpoint()
    labels = {"X-Onward-Run": run, "X-Onward-Step": step} if target.labelled else {}

    def ask(answer: type[A], prompt: Prompt, /) -> A:
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user + _shape(answer)},
        ]
        form = _response_format(answer, target.response_format)
        return parse_answer(answer, _content(_complete(target, messages, form=form, labels=labels)))

    return ask


def _complete(
    target: Endpoint,
    messages: list[ChatCompletionMessageParam],
    *,
    form: ResponseFormat,
    labels: Mapping[str, str],
) -> ChatCompletion:
    """One completion. Errors of the SDK hold sockets and requests; ours hold a sentence."""
    try:
        return _client(target.base_url, target.api_key).chat.completions.create(
            model=target.model, messages=messages, response_format=form, extra_headers=labels
        )
    except APIStatusError as error:
        status = error.status_code
        message = f"{target.base_url} answered {status} for {target.model}: {error.message[:300]}"
        if status in (408, 409, 429) or status >= 500:
            raise EndpointUnavailable(message) from None
        raise EndpointRefused(f"{message}. Check ONWARD_LLM_MODEL and the key.") from None
    except APIConnectionError as error:
        raise EndpointUnavailable(f"{target.base_url} could not be reached: {error}") from None
    except OpenAIError as error:
        raise EndpointUnavailable(f"{target.base_url}: {error}") from None


def parse_answer(answer: type[A], content: str) -> A:
    """The typed answer in a reply's text; AnswerRefused says what does not fit and where."""
    try:
        return answer.model_validate_json(_unfenced(content))
    except ValidationError as error:
        places = [
            f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}"
            for item in error.errors()[:5]
        ]
        raise AnswerRefused(
            f"the LLM's answer does not fit {answer.__name__} ({'; '.join(places)}); "
            f"it begins {content[:120]!r}"
        ) from None


def _unfenced(content: str) -> str:
    """The JSON object inside a code fence or between polite sentences; a bare text as it is."""
    text = content.strip()
    if text.startswith("{") and text.endswith("}"):
        return text
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _content(completion: ChatCompletion) -> str:
    """The text of the first choice, unless it was cut, filtered, refused or empty."""
    if not completion.choices:
        raise AnswerRefused(
            "the LLM's reply has no choices; is ONWARD_LLM_BASE_URL an OpenAI-compatible endpoint?"
        )
    choice = completion.choices[0]
    if choice.finish_reason == "length":
        raise AnswerRefused(
            "the LLM's answer was cut at its length limit; use a model with a longer output"
        )
    if choice.message.refusal:
        raise AnswerRefused(f"the LLM refused to answer: {choice.message.refusal[:200]}")
    if not choice.message.content:
        raise AnswerRefused(f"the LLM's answer is empty (finish_reason {choice.finish_reason})")
    return choice.message.content


def _shape(answer: type[BaseModel]) -> str:
    """The schema in words, for endpoints that ignore ``response_format``."""
    return "\n\nJSON SCHEMA OF THE ANSWER:\n" + json.dumps(
        answer.model_json_schema(), ensure_ascii=False
    )


def _response_format(answer: type[BaseModel], kind: str) -> ResponseFormat:
    if kind == "json_schema":
        return {
            "type": "json_schema",
            "json_schema": {
                "name": answer.__name__.lower(),
                "schema": answer.model_json_schema(),
                "strict": True,
            },
        }
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "text":
        return {"type": "text"}
    raise EndpointRefused(
        f"ONWARD_LLM_RESPONSE_FORMAT={kind!r} is not one of json_schema, json_object, text"
    )


def close_clients() -> None:
    """Close this process's connections; the next question opens new ones."""
    while _clients:
        _clients.popitem()[1].close()


def _client(base_url: str, api_key: str) -> OpenAI:
    """One client for each process; a call then costs no new connection.

    A proxy from the environment is not used for an endpoint on this machine, which it cannot reach.
    """
    known = _clients.get((base_url, api_key))
    if known is None:
        local = urlsplit(base_url).hostname in ("127.0.0.1", "localhost", "::1")
        known = OpenAI(
            base_url=base_url,
            api_key=api_key,
            timeout=ATTEMPT_TIMEOUT,
            max_retries=CLIENT_RETRIES,
            http_client=DefaultHttpxClient(trust_env=False) if local else None,
        )
        known = _clients.setdefault((base_url, api_key), known)
    return known


_clients: dict[tuple[str, str], OpenAI] = {}
#: A connection shared by two processes would mix up their answers.
os.register_at_fork(after_in_child=_clients.clear)
