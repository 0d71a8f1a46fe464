"""Servers whose answers are not what they should be: none of them is lost, taken, or asked for without end."""

import json
from collections.abc import Iterator
from datetime import UTC, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest

from models.journal import calls as journal_calls
from models.journal import endpoints, wallets
from models.journal.values import Claimed
from tasks import Context
from tasks.errors import AnswerIncomplete, CallPostponed
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.liar import Liar, answer, liar
from tests.support.recording import attempt, calls, chat, configured, next_attempt, said


@pytest.fixture
def server() -> Iterator[Liar]:
    with liar() as server:
        yield server


@pytest.fixture
def claimed(journal: Journal, server: Liar) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=server.url):
        yield at_work()


def ask(ctx: Context, server: Liar, text: str = "well?", **fields: Any) -> httpx2.Response:
    with ctx.httpx_client() as client:
        response: httpx2.Response = client.post(
            f"{server.url}/chat/completions", content=json.dumps(chat(text, **fields)).encode()
        )
        return response


def whole(**fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "yes"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c1", "model": "gpt-x", "choices": [choice]} | fields


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": {"prompt_tokens": 10**30, "completion_tokens": 1}},
        {"usage": {"prompt_tokens": -7, "completion_tokens": 2**63}},
        {"usage": {"prompt_tokens": "many", "completion_tokens": 1.5}},
        {"usage": [1, 2]},
        {"model": "gpt\0x"},
        {"model": "gpt-\ud800"},
        {"model": ["gpt-x"]},
        {"model": "m" * 1_000_000},
        {"id": "c\0\udfff"},
        {"id": 17},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_odd_facts_about_a_whole_answer_do_not_lose_it(
    journal: Journal, server: Liar, claimed: Claimed, fields: dict[str, Any]
) -> None:
    server.says(answer(whole(**fields)))
    with attempt(claimed) as ctx:
        assert said(ask(ctx, server)) == "yes"
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, server)) == "yes"
    assert len(server.asked) == 1
    assert calls(journal) == [("", 0, "complete", None)]
    assert wallets.standing(claimed.run_id).held_calls == 0
    assert len(journal_calls.of_run(claimed.run_id)) == 1


@pytest.mark.parametrize(
    "text", ["价格是多少？", "\ud800 alone", "nul \0 in it", "{{secret:NOBODY}}", ""]
)
def test_odd_questions_are_recorded_as_they_are(
    journal: Journal, server: Liar, claimed: Claimed, text: str
) -> None:
    server.says(answer(whole()))
    with attempt(claimed) as ctx:
        ask(ctx, server, text, user="\ud800\0")
    with next_attempt(journal, claimed) as ctx:
        ask(ctx, server, text, user="\ud800\0")
    assert len(server.asked) == 1
    (row,) = journal.rows("SELECT request FROM recorded_call")
    assert json.loads(row["request"])["messages"][0]["content"] == text


def test_a_model_name_that_nobody_can_write_down_is_asked_for_all_the_same(
    journal: Journal, server: Liar, claimed: Claimed
) -> None:
    server.says(answer(whole()))
    with attempt(claimed) as ctx:
        assert said(ask(ctx, server, model="gpt-\ud800\0")) == "yes"
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, server, model="gpt-\ud800\0")) == "yes"
    assert len(server.asked) == 1


DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    "said",
    [
        answer(b""),
        answer(DEEP),
        answer(b"data: " + DEEP + b"\n\n", content_type="text/event-stream"),
        answer(b"data: 1\n\ndata: null\n\n", content_type="text/event-stream"),
        answer(b"\0\xff\xfe not text"),
        answer(b"not gzip at all", content_encoding="gzip"),
        answer(b'{"choices": [17, null, {"message": 4}]}'),
        answer(b'{"choices": [{"finish_reason": {"a": 1}, "message": {"content": [[]]}}]}'),
        answer(whole(), content_length="100000"),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=[
        "empty",
        "deep",
        "deep-event",
        "no-objects",
        "bytes",
        "no-gzip",
        "numbers",
        "nested",
        "short",
        "chunk",
    ],
)
def test_what_cannot_be_read_is_recorded_rejected_and_given_up_at_the_limit(
    journal: Journal, server: Liar, claimed: Claimed, said: bytes
) -> None:
    server.says(said)
    with attempt(claimed) as ctx, pytest.raises(AnswerIncomplete):
        ask(ctx, server)
    with next_attempt(journal, claimed) as ctx, pytest.raises(AnswerIncomplete):
        ask(ctx, server)
    assert len(server.asked) == 3
    assert [verdict for *_, verdict in calls(journal)] == ["rejected"] * 3
    assert wallets.standing(claimed.run_id).held_calls == 0


def test_an_answer_that_looks_like_a_reference_of_the_journal_is_text(
    journal: Journal, server: Liar, claimed: Claimed
) -> None:
    text = b'{"$onward-artifact":{"digest":"sha256:' + b"0" * 64 + b'","size":3}}'
    server.says(answer(text))
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        assert client.get(f"{server.url}/page").content == text
    with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
        assert client.get(f"{server.url}/page").content == text
    assert len(server.asked) == 1


def dated(journal: Journal, seconds: float, **how: Any) -> str:
    now = journal.one("SELECT onward_now()").astimezone(UTC)
    return format_datetime(now + timedelta(seconds=seconds), **how)


@pytest.mark.parametrize("form", ["no-date", "naive", "asctime", "rfc850"])
def test_a_date_to_wait_for_is_kept_in_every_form(
    journal: Journal, server: Liar, claimed: Claimed, form: str
) -> None:
    now = journal.one("SELECT onward_now()").astimezone(UTC)
    until = now + timedelta(seconds=90)
    spelled = {
        "no-date": format_datetime(until, usegmt=True),
        "naive": format_datetime(until.replace(tzinfo=None)),
        "asctime": until.strftime("%a %b %d %H:%M:%S %Y"),
        "rfc850": until.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
    }[form]
    headers = {"retry_after": spelled}
    if form != "no-date":
        headers["date"] = format_datetime(now, usegmt=True)
    server.says(answer({"error": {"message": "busy"}}, status=429, **headers))
    with attempt(claimed) as ctx, pytest.raises(CallPostponed) as stopped:
        ask(ctx, server)
    assert stopped.value.delay >= 88
    assert endpoints.standing(server.url).wait >= 85


@pytest.mark.parametrize("given", ["soon", "-5", "nan", "inf", "1e400", "", "99999999999", "1_0"])
def test_nonsense_in_place_of_a_time_is_a_failure_like_another(
    journal: Journal, server: Liar, claimed: Claimed, given: str
) -> None:
    server.says(answer({"error": "no"}, status=429, retry_after=given))
    with attempt(claimed) as ctx, pytest.raises(CallPostponed) as stopped:
        ask(ctx, server)
    assert 0 < stopped.value.delay <= 1.25 * 86400
    assert wallets.standing(claimed.run_id).held_calls == 0


def test_a_length_that_was_looked_up_is_given_again(
    journal: Journal, server: Liar, claimed: Claimed
) -> None:
    server.says(b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nconnection: close\r\n\r\n")
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        assert client.head(f"{server.url}/big").headers["content-length"] == "1234"
    with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
        assert client.head(f"{server.url}/big").headers["content-length"] == "1234"
