"""The providers' own SDKs against a service that checks what it is sent: each dialect, streamed or not."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from models.settings import settings
from tasks import Context
from tasks.llm import NotConfigured, make, pure, sdks
from tests.support.models import Answer, ModelService, models_service

pytestmark = pytest.mark.integration

PROVIDERS = ("openai", "anthropic")


class Verdict(BaseModel):
    rating: str
    reasons: list[str]


@pure
def look_up(word: str) -> str:
    """What a word means."""
    return f"{word} is a word"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    directory: Path = tmp_path_factory.mktemp("llm")
    with models_service(directory) as service:
        yield service


@pytest.fixture(autouse=True)
def configured(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ONWARD_LLM_BASE_URL", models.url)
    monkeypatch.setenv("ONWARD_LLM_MODEL", "gpt-x")
    monkeypatch.delenv("ONWARD_LLM_KEY", raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def provided(provider: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ONWARD_LLM_PROVIDER", provider)
    settings.cache_clear()
    return make(Context.for_test())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_typed_answer(
    provider: str, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = provided(provider, monkeypatch)
    models.script(f"typed-{provider}", Answer(value={"rating": "good", "reasons": ["a"]}))
    verdict = llm.ask(Verdict, f"typed-{provider}", system="Judge.", temperature=0.2)
    assert verdict == Verdict(rating="good", reasons=["a"])
    (call,) = models.calls(f"typed-{provider}")
    assert call.kind == {"openai": "chat", "anthropic": "messages"}[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_streamed_text_is_heard_and_whole(
    provider: str, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = provided(provider, monkeypatch)
    models.script(f"stream-{provider}", "One, two, three, four and five.")
    assert (
        llm.text(f"stream-{provider}", on_chunk=lambda _: None) == "One, two, three, four and five."
    )
    heard = llm.atext(f"stream-{provider}", on_chunk=lambda _: None)
    assert asyncio.run(heard) == "One, two, three, four and five."


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_with_parallel_tool_calls_is_legal(
    provider: str, streamed: bool, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = provided(provider, monkeypatch)
    start = f"talk-{provider}-{streamed}"
    models.script(
        start,
        Answer(
            tool_calls=(
                {"name": "look_up", "arguments": {"word": "onward"}},
                {"name": "look_up", "arguments": {"word": 7}},
            )
        ),
        "Both are words.",
    )
    given = {"on_chunk": lambda _: None} if streamed else {}
    talk = llm.converse(start, tools=[look_up], **given)
    assert talk.answer == "Both are words."
    assert models.rejected() == []
    assert models.count(start) == 2


def test_async_conversations(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = provided("openai", monkeypatch)
    models.script(
        "atalk", Answer(tool_calls=({"name": "look_up", "arguments": {"word": "a"}},)), "Done."
    )
    assert asyncio.run(llm.aconverse("atalk", tools=[look_up])).answer == "Done."


def test_a_missing_sdk_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(sdks, "import_module", missing)
    with pytest.raises(NotConfigured, match=r"pip install 'onward\[openai\]'"):
        provided("openai", monkeypatch).text("Hello")


def test_no_client_holds_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONWARD_LLM_KEY", "PROVIDER_KEY")
    monkeypatch.setenv("PROVIDER_KEY", "sk-canary")
    provided("openai", monkeypatch)
    with sdks.Sdk(Context.for_test(), "openai").client(async_=False) as client:
        assert client.api_key == "{{secret:PROVIDER_KEY}}"
        assert client.max_retries == 0
