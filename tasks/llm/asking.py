"""How an answer comes to be accepted: schema, then the caller's check, then acceptance; or it is asked again.

Written once, as generators that say what is to be done next (``Send``, ``Accept``, ``Reject``, ``Invoke``);
``llm.py`` carries that out in place or awaits it. What was sent and judged is on record, so another attempt
goes the same way without asking: the limit on asking holds over crashes.
"""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from tasks.errors import AnswerIncomplete
from tasks.llm.errors import SchemaInvalid
from tasks.llm.values import Message, Question, Reply, ToolCall
from tasks.tool_base import Tool

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Ask this; the answer is a ``Reply``, or ``AnswerIncomplete`` is raised."""

    question: Question


@dataclass(frozen=True, slots=True)
class Accept:
    """This answer goes on to whoever asked."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Reject:
    """This answer goes nowhere."""

    reply: Reply
    reason: str


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call this tool through the ledger."""

    tool: Tool[Any, Any]
    request: Any
    name: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Have this answered in the background; the answer is a ``Reply`` with an id."""

    question: Question


@dataclass(frozen=True, slots=True)
class Poll:
    """How that stands; ``Forgotten`` is raised when the provider does not know it any more."""

    question: Question
    response_id: str


@dataclass(frozen=True, slots=True)
class Park:
    """The step waits without a worker, and begins anew after ``delay`` seconds."""

    delay: float
    why: str


class Forgotten(Exception):
    """The provider has dropped an answer before it was fetched."""


Action: TypeAlias = Send | Accept | Reject | Invoke | Begin | Poll | Park
Logic: TypeAlias = Generator[Action, Any, T]

#: What an answer comes to. Raises ``ValueError`` with the reason, for the model, why it is not accepted.
Read: TypeAlias = Callable[[Reply], T]


def sent(question: Question) -> Logic[Reply]:
    """Ask, and wait for the answer."""
    reply: Reply = yield Send(question)
    return reply


def asked(
    question: Question,
    read: Read[T],
    *,
    what: str,
    max_asks: int,
    send: Callable[[Question], Logic[Reply]] = sent,
) -> Logic[T]:
    """Ask until an answer is accepted, at most ``max_asks`` times over all attempts of the step.

    An incomplete answer is asked for again in the same words; one that was read and rejected is said back
    with the reason. A verdict on record stands, whatever the check would say now.
    A question asked again whose answer was lost with its attempt counts as well, since it may have been answered
    and paid for; the first one does not: crashes alone use nothing up, so a healthy step survives any number.
    """
    if max_asks < 1:
        raise ValueError(f"max_asks={max_asks} leaves no question to ask")
    spent, current = 0, question
    while True:
        try:
            reply = yield from send(current)
        except AnswerIncomplete as incomplete:
            spent += incomplete.counts + (incomplete.lost if spent else 0)
            if spent >= max_asks:
                raise _given_up(incomplete, what, asks=spent) from incomplete
            continue
        value, reason = _judged(reply, read)
        if reason is None:
            yield Accept(reply)
            return value  # type: ignore[return-value] # there is one when there is no reason against it
        yield Reject(reply, reason)
        spent += reply.taken.counts + (reply.taken.lost if spent else 0)
        if spent >= max_asks:
            raise SchemaInvalid(what, asks=spent, reason=reason, answer=reply.text)
        current = again(current, reply, reason)


def _given_up(last: AnswerIncomplete, what: str, *, asks: int) -> AnswerIncomplete:
    """The last refusal, in view of all asks."""
    hint = ""
    if last.state == "other_model":
        hint = (
            " Say which models may answer, with pin='gpt-x-*' or ONWARD_LLM_PIN, when that one may."
        )
    if asks == 1 and not hint:
        return last
    return AnswerIncomplete(
        f"The model was asked {asks} time{'s' * (asks > 1)} for {what}, and no answer was accepted. The last one "
        f"is no answer to go on with: {last}{hint}",
        state=last.state,
        text=last.text,
    )


def again(question: Question, reply: Reply, reason: str) -> Question:
    """The question after a rejected answer: the answer, and what is wrong with it."""
    if reply.calls or not reply.text.strip() or not _is_whole_text(reply):
        return question  # said back, it would be illegal: calls without results, or nothing at all
    why: Message = {
        "role": "user",
        "content": f"This answer was not accepted: {reason}. Answer again, in full, without that mistake.",
    }
    return replace(question, messages=[*question.messages, reply.message, why])


def _judged(reply: Reply, read: Read[T]) -> tuple[T | None, str | None]:
    taken = reply.taken
    if taken.verdict == "rejected":
        return None, taken.reason or "it was rejected"
    try:
        if not _is_whole_text(reply):
            raise ValueError("it holds half a character, which no text can hold")
        return read(reply), None
    except ValueError as error:
        return None, str(error) or type(error).__name__


def as_text(reply: Reply) -> str:
    """The text of an answer that is to be one."""
    require_no_calls(reply.calls)
    if not reply.text.strip():
        raise ValueError("there is no text in it")
    return reply.text


def _is_whole_text(reply: Reply) -> bool:
    """Whether it can be said back and written down: JSON lets a model write half of a pair of surrogates."""
    try:
        json.dumps(reply.message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def require_no_calls(calls: tuple[ToolCall, ...]) -> None:
    """Raise for an answer that wants tools where none were offered."""
    if calls:
        raise ValueError(f"it asks for tools ({', '.join(call.name for call in calls)})")
