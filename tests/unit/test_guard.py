"""What a step may send without a tool, how a request is known again, and what services ask for."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from models.settings import settings
from tasks.errors import DefinitionError, UndeclaredEffect
from tasks.recorder import declared, digests, guard, refusals
from tasks.recorder.comparing import difference
from tasks.recorder.declared import declare_endpoint
from tasks.recorder.refusals import Denied, Elsewhere, Later, Theirs, Withdrawn
from tasks.recorder.values import Arrived, Outgoing

OPENAI = "https://api.openai.com/v1"


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(declared, "_declared", {})
    settings.cache_clear()
    yield
    settings.cache_clear()


def kind(method: str, url: str, *, untracked: bool = False) -> str:
    return guard.admit(Outgoing(method=method, url=url), untracked=untracked, step="read").kind


@pytest.mark.parametrize(
    ("method", "url", "is_a"),
    [
        ("GET", "https://example.org/a?b=1", "read"),
        ("HEAD", "https://example.org", "read"),
        ("options", "https://example.org", "read"),
        ("POST", f"{OPENAI}/chat/completions", "model"),
        ("POST", "https://API.openai.com:443/v1/responses?x=1", "model"),
        ("POST", "https://api.anthropic.com/v1/messages", "model"),
        ("POST", "https://api.anthropic.com/v1/messages/count_tokens", "read"),
        ("GET", f"{OPENAI}/models", "read"),
    ],
)
def test_what_only_reads_or_asks_a_model_may_be_sent(method: str, url: str, is_a: str) -> None:
    assert kind(method, url) == is_a


@pytest.mark.parametrize(
    "header",
    [("X-HTTP-Method-Override", "delete"), ("x-method-override", "PUT"), ("Upgrade", "websocket")],
)
def test_a_request_that_only_looks_like_a_reading_one_is_refused(header: tuple[str, str]) -> None:
    disguised = Outgoing(method="GET", url="https://example.org/a", headers=(header,))
    with pytest.raises(UndeclaredEffect, match=header[1].upper()):
        guard.admit(disguised, untracked=False, step="read")


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("POST", "https://example.org/v1/chat/completions"),
        ("POST", "https://api.openai.com.evil.example/v1/chat/completions"),
        ("POST", "http://api.openai.com/v1/chat/completions"),
        ("POST", "https://api.openai.com:8443/v1/chat/completions"),
        ("POST", "https://api.openai.com@example.org/v1/chat/completions"),
        ("POST", "https://api.openai.com/v1x/chat/completions"),
        ("POST", f"{OPENAI}/files"),
        ("POST", f"{OPENAI}/threads/thread_1/messages"),
        ("POST", f"{OPENAI}/../admin/chat/completions"),
        ("POST", f"{OPENAI}/%2E%2e/admin/chat/completions"),
        ("POST", f"{OPENAI}/messages/batches"),
        ("POST", f"{OPENAI}/responses/resp_1/cancel"),
        ("DELETE", f"{OPENAI}/responses/resp_1"),
        ("PUT", f"{OPENAI}/chat/completions"),
        ("PATCH", "https://example.org"),
        ("CONNECT", "https://example.org"),
    ],
)
def test_anything_else_is_an_effect_that_nobody_has_declared(method: str, url: str) -> None:
    with pytest.raises(UndeclaredEffect, match="Step 'read' was about to send"):
        kind(method, url)
    assert kind(method, url, untracked=True) == "untracked"


def test_a_poll_of_an_answer_that_is_being_made_is_known_as_one() -> None:
    poll = guard.admit(
        Outgoing(method="GET", url=f"{OPENAI}/responses/resp_1"), untracked=False, step="a"
    )
    assert poll.polls
    assert poll.name == "openai.responses"
    other = guard.admit(
        Outgoing(method="GET", url="https://e.org/responses/1"), untracked=False, step="a"
    )
    assert not other.polls


def test_a_declared_endpoint_may_be_asked_and_has_its_limits() -> None:
    declare_endpoint("http://llm.local:8000/api/v1/", requests_per_minute=60, max_output=100)
    found = declared.endpoint_of("http://LLM.local:8000/api/v1/chat/completions")
    assert found is not None
    assert (found.url, found.requests_per_minute, found.is_limited) == (
        "http://llm.local:8000/api/v1",
        60,
        True,
    )
    assert kind("POST", "http://llm.local:8000/api/v1/chat/completions") == "model"


@pytest.mark.parametrize(
    "url", ["llm.local", "ftp://llm.local", "http://", "http://u:p@h/v1", "http://h/v1?a=1"]
)
def test_an_endpoint_is_a_base_url(url: str) -> None:
    with pytest.raises(DefinitionError, match="takes a base URL"):
        declare_endpoint(url)


def test_limits_are_above_zero() -> None:
    with pytest.raises(DefinitionError, match="requests_per_minute=0 must be above 0"):
        declare_endpoint("http://h/v1", requests_per_minute=0)


def digest(body: str, *, url: str = OPENAI, method: str = "POST") -> str:
    return digests.digest(
        method=method, url=digests.recordable_url(url), dialect="openai.chat", body=body
    )


def test_a_digest_is_of_the_question_whatever_its_spelling() -> None:
    assert digest('{"a": 1, "b": {"c": 2, "d": 3}}') == digest('{"b":{"d":3,"c":2},"a":1}')
    for other in ('{"a": 2}', '{"a": 1, "b": null}', '{"a": "1"}', "not json", ""):
        assert digest(other) != digest('{"a": 1}')
    assert digest("{}", url=f"{OPENAI}?a=1") != digest("{}", url=f"{OPENAI}?a=2")
    assert digest("{}", method="GET") != digest("{}")


def test_a_rotated_credential_in_a_url_is_no_other_question() -> None:
    first, second = (
        f"https://user:{word}@e.org/a?api_key={word}&q=1" for word in ("old-one", "new-one")
    )
    assert digest("", url=first) == digest("", url=second)
    assert "old-one" not in digests.recordable_url(first)
    assert (
        digests.recordable_url("https://e.org/a?key=issue-12&q=%20#part")
        == "https://e.org/a?key=issue-12&q=%20"
    )


@pytest.mark.parametrize(
    "body", [b"", b"text", "\u00e9".encode(), b"\xff\x00", b"a\0b", b"onward-bytes:sha256=x"]
)
def test_any_body_survives_the_journal(body: bytes) -> None:
    assert digests.as_bytes(digests.as_text(body)) == body
    assert "\0" not in digests.as_text(body)


def test_a_difference_names_its_fields() -> None:
    before, now = (
        '{"model": "a", "n": 1, "tools": [1]}',
        '{"model": "b", "n": 1, "tools": [2], "x": null}',
    )
    assert difference(before, now) == "'model' (was 'a', is 'b'), 'tools', 'x' (was not there)"
    assert difference("{}", "{}") == "its method, its URL or its endpoint"
    assert difference("a", "b") == "its body"


def answer(status: int, body: bytes = b"", **headers: str) -> Arrived:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Arrived(status=status, headers=pairs, body=body)


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def http_date(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "120"}, 120.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "0"}, 0.05),
        ({"retry_after": "1000000"}, 86400.0),
        ({"retry_after": http_date(90), "date": http_date(0)}, 90.0),
        ({"retry_after": http_date(-5), "date": http_date(0)}, 0.05),
        ({"retry_after": http_date(90)}, NOW + timedelta(seconds=90)),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_services_clock(
    headers: dict[str, str], seconds: float | datetime | None
) -> None:
    assert refusals.asked_to_wait(answer(429, b"", **headers)) == seconds


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        (answer(429, retry_after="7"), Later(7.0, "status 429")),
        (answer(429), Later(None, "status 429")),
        (answer(503, retry_after="7"), Later(7.0, "status 503")),
        (answer(529), Later(None, "status 529")),
        (answer(500, retry_after="7"), Later(None, "status 500")),
        (answer(408), Later(None, "status 408")),
        (answer(410), Withdrawn("status 410")),
        (
            answer(404, b'{"error": {"code": "model_not_found", "message": "gone"}}'),
            Withdrawn("status 404, gone"),
        ),
        (
            answer(400, b'{"error": {"message": "The model `x` has been deprecated"}}'),
            Withdrawn("status 400, The model `x` has been deprecated"),
        ),
        (
            answer(
                404,
                b'{"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}',
            ),
            Withdrawn("status 404, model: x"),
        ),
        (answer(404, b"not found"), Theirs()),
        (answer(401), Denied("status 401")),
        (answer(403, b'{"error": "no"}'), Denied("status 403, no")),
        (answer(400, b'{"error": {"message": "messages: too many"}}'), Theirs()),
        (answer(307, location="/v1/other"), Theirs()),
        (answer(307, location="https://example.org/v1"), Elsewhere("https://example.org/v1")),
    ],
)
def test_what_an_answer_without_success_means(given: Arrived, meaning: refusals.Meaning) -> None:
    assert refusals.of_model(given, f"{OPENAI}/chat/completions") == meaning


def test_something_read_is_left_alone_only_when_it_says_how_long() -> None:
    assert refusals.of_read(answer(429, retry_after="3")) == Later(3.0, "status 429")
    assert refusals.of_read(answer(503)) is None
    assert refusals.of_read(answer(500, retry_after="3")) is None
