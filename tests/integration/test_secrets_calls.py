"""Secrets in recorded calls: filled in where the agent's code wants them, nowhere else, and on no record."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from models import redaction, secret
from models.journal.values import Claimed
from models.settings import settings
from tasks.adapters.anthropic_sdk import anthropic_client
from tasks.adapters.openai_sdk import openai_client
from tasks.secrets import Secret, SecretRefused
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.models import Answer, ModelService, Ways
from tests.support.recording import attempt, chat, next_attempt

CANARY = "CANARY-0123456789-abc"


@pytest.fixture
def claimed(
    journal: Journal, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Claimed]:
    monkeypatch.setenv("ONWARD_MODEL_ENDPOINTS", models.url)
    settings.cache_clear()
    yield at_work()
    monkeypatch.undo()
    settings.cache_clear()


def _said(stream: bytes) -> str:
    datas = [line[5:] for line in stream.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for data in datas for choice in json.loads(data)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_a_streamed_answer_is_recorded_without_the_secret_that_its_events_make_up(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    redaction.register("CODE", CANARY)
    told = f"you said {CANARY} to me"
    models.script("repeat it", Answer(text=told))
    live: list[bytes] = []
    for context in (attempt(claimed), next_attempt(journal, claimed)):
        with context as ctx, ctx.httpx_client() as client:
            url, body = f"{models.url}/chat/completions", chat("repeat it", stream=True)
            live.append(client.post(url, json=body).content)
    assert live[0] == live[1], "replayed as it was given"
    assert _said(live[0]) == "you said [secret CODE] to me"
    assert models.count("repeat it") == 1
    rows = [row for table in journal.image().values() for row in table]
    assert not any(CANARY in row or "CANARY" in row for row in rows)


class _Pages(BaseHTTPRequestHandler):
    """Remembers what it was asked for."""

    def do_GET(self) -> None:
        asked: list[tuple[str, dict[str, str]]] = self.server.asked  # type: ignore[attr-defined]
        asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def pages() -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """The address of a service that is read, and what it was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, name="pages")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", server.asked  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


Pages = tuple[str, list[tuple[str, dict[str, str]]]]
SPELLED = "a document says {{secret:OPENAI_API_KEY}} and {{secret:ANTHROPIC_API_KEY}}"


def _keyed(monkeypatch: pytest.MonkeyPatch, models: ModelService, provider: str) -> None:
    for name, value in {
        "OPENAI_API_KEY": CANARY, "ANTHROPIC_API_KEY": CANARY, "ONWARD_LLM_BASE_URL": models.url,
        "ONWARD_LLM_MODEL": "gpt-x", "ONWARD_LLM_PROVIDER": provider,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ONWARD_LLM_KEY", raising=False)
    settings.cache_clear()
    models.behave(Ways(authorization=CANARY))


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_ctx_llm_sends_its_key_and_no_document_gets_it(
    provider: str, models: ModelService, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keyed(monkeypatch, models, provider)
    with attempt(claimed) as ctx:
        ctx.llm.text(SPELLED)
    (call,) = models.calls(SPELLED)
    assert CANARY in call.headers
    assert CANARY not in call.request
    assert call.text.endswith(SPELLED), "as the document has it"


@pytest.mark.parametrize("make", [openai_client, anthropic_client])
def test_a_key_that_an_adapter_was_given_goes_into_no_body_and_no_address(
    make: Any, models: ModelService, claimed: Claimed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keyed(monkeypatch, models, "openai")
    url, asked = pages
    said: list[Any] = [{"role": "user", "content": SPELLED}]
    with attempt(claimed) as ctx:
        base = models.url if make is openai_client else models.url.removesuffix("/v1")
        with make(ctx, base_url=base) as sdk:
            if make is openai_client:
                sdk.chat.completions.create(model="gpt-x", messages=said)
            else:
                sdk.messages.create(model="gpt-x", messages=said, max_tokens=9)
        with ctx.httpx_client() as client:
            client.get(f"{url}/x?k={{{{secret:OPENAI_API_KEY}}}}")
            client.post(f"{models.url}/chat/completions", json=chat(SPELLED),
                        headers={"Authorization": "Bearer {{secret:OPENAI_API_KEY}}"})  # fmt: skip
    calls = models.calls(SPELLED)
    assert len(calls) == 2
    assert all(CANARY in call.headers and CANARY not in call.request for call in calls)
    assert CANARY not in str(asked)


def test_what_the_agents_code_makes_is_filled_in_once_and_recorded_alike_by_every_process(
    journal: Journal, models: ModelService, claimed: Claimed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    url, asked = pages
    monkeypatch.setenv("CODE", CANARY)
    for number, context in enumerate((attempt(claimed), next_attempt(journal, claimed))):
        if number:  # another process, with a mark of its own
            redaction.forget()
            fresh = secret.MARK.replace(secret.MARK[1:9], "fedcba98")
            monkeypatch.setattr(secret, "MARK", fresh)
        told = f"{{{{secret:CODE}}}} is not {Secret('CODE')}"
        with context as ctx, ctx.httpx_client() as client:
            client.post(f"{models.url}/chat/completions", json=chat(told))
            client.get(f"{url}/x?q={Secret('CODE')}", headers={"X-Code": f"{Secret('CODE')}"})
    (call,) = models.calls("is not")
    assert (
        json.loads(call.request)["messages"][0]["content"] == f"{{{{secret:CODE}}}} is not {CANARY}"
    )
    ((path, headers),) = asked
    assert path == f"/x?q={CANARY}"
    assert headers["x-code"] == CANARY
    rows = [row for table in journal.image().values() for row in table]
    assert not any(CANARY in row or secret.MARK in row for row in rows)


def test_a_placeholder_that_would_stay_in_a_header_is_not_sent(
    models: ModelService, claimed: Claimed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = pages
    monkeypatch.setenv("CRM_TOKEN", CANARY)
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        client.get(url, headers={"Authorization": "Bearer {{secret:CRM_TOKEN}}"})
        with pytest.raises(SecretRefused, match=r"header x-customer .* Nothing was sent"):
            client.get(f"{url}/2", headers={"x-customer": "{{secret:CRM_TOKEN}}"})
        with pytest.raises(SecretRefused, match="header x-customer"):
            client.post(
                f"{models.url}/chat/completions", json=chat("unsent"),
                headers={"x-customer": "{{secret:CRM_TOKEN}}"},
            )  # fmt: skip
    assert [path for path, _ in asked] == ["/"]
    assert asked[0][1]["authorization"] == f"Bearer {CANARY}"
    assert models.calls("unsent") == []
