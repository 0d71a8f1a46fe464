"""OpenAI's responses, for answers that are made in the background. Pure."""

from collections.abc import Mapping
from typing import Any

from tasks.llm.forms import in_words
from tasks.llm.values import Question, Reply, Taken
from tasks.recorder.reading import dicts

UNFINISHED = frozenset({"queued", "in_progress"})


def payload(question: Question) -> dict[str, Any]:
    """The arguments of ``client.responses.create`` for an answer in the background."""
    system, form = question.system, question.form
    if form is not None and question.response_format != "json_schema":
        system = "\n\n".join(filter(None, (system, in_words(form))))
    asked: dict[str, Any] = {
        "model": question.model,
        "input": list(question.messages),
        "background": True,
    }
    if system:
        asked["instructions"] = system
    if form is not None and question.response_format == "json_schema":
        shape = {"type": "json_schema", "name": form.name, "schema": dict(form.schema)}
        asked["text"] = {"format": {**shape, "strict": form.strict}}
    return asked | dict(question.sampling)


def reply(answer: Mapping[str, Any], taken: Taken) -> Reply:
    """A response: finished, or one to ask for again by its id."""
    text = "".join(
        str(part.get("text") or "")
        for item in dicts(answer.get("output"))
        if item.get("type") == "message"
        for part in dicts(item.get("content"))
        if part.get("type") == "output_text"
    )
    return Reply(
        text=text,
        message={"role": "assistant", "content": text},
        model=str(answer.get("model") or ""),
        response_id=str(answer.get("id") or ""),
        status=str(answer.get("status") or ""),
        taken=taken,
    )
