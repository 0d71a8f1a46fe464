"""A model that repeats a secret in a stream gives it piece by piece: no event holds it, and yet it is there."""

import json

import pytest

from models import redaction
from tasks.recorder import dialects, spread

KEY = "CANARY-0123456789-abcdefghij"


def _stream(events: list[dict[str, object]], *, end: str = "\n\n") -> str:
    return "".join(f"data: {json.dumps(event)}{end}" for event in events) + f"data: [DONE]{end}"


def _chat(text: str, index: int = 0) -> dict[str, object]:
    return {"id": "c-1", "choices": [{"index": index, "delta": {"content": text}}]}


def _content(stream: str, index: int = 0) -> str:
    events = [json.loads(line[5:]) for line in stream.split("\n") if "choices" in line]
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(one["delta"]["content"] for one in choices if one["index"] == index)


@pytest.mark.parametrize("size", [1, 2, 5, 13, 40, 100])
@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
def test_a_secret_spread_over_events_is_struck_out(size: int, end: str) -> None:
    redaction.register("KEY", KEY)
    said = f"It is {KEY}, I say\u2028{KEY}!"
    pieces = [_chat(said[at : at + size]) for at in range(0, len(said), size)]
    safe = spread.redact(_stream(pieces, end=end))
    assert _content(safe) == "It is [secret KEY], I say\u2028[secret KEY]!"
    assert spread.redact(safe) == safe
    assert safe.count(end) == len(pieces) + 1


def test_texts_made_side_by_side_are_told_apart() -> None:
    redaction.register("KEY", KEY)
    events = [_chat(piece, index) for piece in ("a ", KEY[:9], KEY[9:], " b") for index in (0, 1)]
    safe = spread.redact(_stream(events))
    assert _content(safe, 0) == _content(safe, 1) == "a [secret KEY] b"
    halves = _stream([_chat(KEY[:9], 0), _chat(KEY[9:], 1)])
    assert spread.redact(halves) is halves, "two answers, and neither holds it"


def test_arguments_of_tools_are_known_in_the_form_of_json() -> None:
    value = 'quo"ted \\ CANARY'
    redaction.register("KEY", value)
    written = json.dumps({"code": value})
    events: list[dict[str, object]] = [
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": one},
        }
        for one in (written[:12], written[12:20], written[20:])
    ]
    safe = spread.redact("event: content_block_delta\n" + _stream(events))
    deltas = [json.loads(line[5:]) for line in safe.split("\n") if "partial_json" in line]
    joined = "".join(one["delta"]["partial_json"] for one in deltas)
    assert json.loads(joined) == {"code": "[secret KEY]"}


def test_a_stream_without_one_and_any_other_text_stay_the_same_object() -> None:
    clean = _stream([_chat("nothing"), _chat(" here")])
    assert spread.redact(clean) is clean
    redaction.register("KEY", KEY)
    for text in (clean, "", "data: [1, 2]\n\n", "data: {broken\n\n", '{"a":"data: {}"}'):
        assert spread.redact(text) is text
    assert spread.redact(f'{{"a":"{KEY}"}}') == '{"a":"[secret KEY]"}'


def test_what_is_left_is_a_whole_answer_still() -> None:
    redaction.register("KEY", KEY)
    end: dict[str, object] = {
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    }
    before = _stream([_chat(KEY[:9]), _chat(KEY[9:]), end])
    after = spread.redact(before)
    assert KEY[:9] not in after
    read = dialects.CHAT.of_events
    assert read is not None
    assert read(after.encode()).state == read(before.encode()).state == "complete"
