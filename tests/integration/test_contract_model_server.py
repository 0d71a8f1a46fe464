"""The model server as a real process: the OpenAI SDK talks to it, and it counts every request."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import APIConnectionError, BadRequestError, OpenAI
from pydantic import ValidationError

from examples.contract_review import prompts
from examples.contract_review.llm import unrecorded
from examples.contract_review.model_server import MODEL
from examples.contract_review.prompts import Prompt
from examples.contract_review.values import Obligations
from models.settings import settings
from tests.support.contract_services import ROOT, Service, asking, model_server
from tests.support.contracts import CHINESE, prepared


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with asking(model_server(tmp_path)) as running:
        monkeypatch.setenv("ONWARD_LLM_BASE_URL", f"{running.url}/v1")
        monkeypatch.setenv("ONWARD_LLM_MODEL", MODEL)
        monkeypatch.setenv("ONWARD_LLM_LABELS", "1")
        settings.cache_clear()
        yield running
    settings.cache_clear()


def prompt(text: str = CHINESE) -> Prompt:
    return prompts.ask_for_obligations(*prepared(text))


def ask(run: str = "run-1", step: str = "obligations") -> Obligations:
    return unrecorded(run=run, step=step)(Obligations, prompt(), check=lambda _: "")


def test_an_answer_is_typed_and_counted_by_run_and_step(service: Service) -> None:
    assert {"甲方", "乙方"} == set(ask().parties)
    ask(step="risks")
    ask(step="risks")
    stats = service.get("/stats")
    assert stats["model"] == MODEL
    assert (stats["calls"], stats["distinct_steps"]) == (3, 2)
    assert stats["repeated"] == [{"run": "run-1", "step": "risks", "calls": 2}]
    assert stats["tokens_in"] > stats["tokens_out"] > 0
    first, second = service.get("/calls?run=run-1")["calls"]
    assert (first["step"], first["calls"], second["calls"]) == ("obligations", 1, 2)
    answers = [*first["answers"], *second["answers"]]
    assert len({one["id"] for one in answers}) == 3
    assert sum(one["tokens_in"] for one in answers) == stats["tokens_in"]
    assert service.get("/calls?run=run-2")["calls"] == []


def test_labels_are_sent_only_when_asked_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONWARD_LLM_LABELS")
    ask()
    assert service.get("/stats")["unlabelled_calls"] == 1


def test_usage_is_returned_and_the_model_says_what_it_is(service: Service) -> None:
    with OpenAI(base_url=f"{service.url}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        reply = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": prompt().user}]
        )
    assert "rules" in reply.model
    assert reply.usage is not None
    assert (
        reply.usage.total_tokens
        == service.get("/stats")["tokens_in"] + reply.usage.completion_tokens
    )


def test_asked_again_it_answers_otherwise(service: Service) -> None:
    assert len({ask().model_dump_json() for _ in range(6)}) > 1
    assert service.get("/stats")["calls"] == 6


def test_counts_survive_sigkill_and_a_torn_line(service: Service, tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: ask(run=f"run-{n}"), range(64)))
    before = service.get("/stats")
    assert before["calls"] == 64
    service.kill()
    with (tmp_path / "model" / "calls.jsonl").open("ab") as file:
        file.write(b'{"run": "torn')
    service.start()
    assert service.get("/stats") == before
    ask(run="run-after")
    service.kill()
    service.start()
    assert service.get("/stats")["calls"] == 65


def test_a_second_server_on_the_same_store_is_refused(service: Service) -> None:
    second = subprocess.run(service.command, cwd=ROOT, capture_output=True, check=False, timeout=20)
    assert second.returncode == 1
    assert b"another one is already counting" in second.stderr
    ask()
    assert service.get("/stats")["calls"] == 1


def test_what_the_endpoint_refuses_is_not_tried_again(service: Service) -> None:
    poem = Prompt("system", "Write me a poem.")
    with pytest.raises(BadRequestError, match="by rules"):
        unrecorded(run="r", step="s")(Obligations, poem, check=lambda _: "")
    status, answer = service.request("POST", "/v1/chat/completions", {"stream": True})
    assert (status, "does not stream" in answer["error"]["message"]) == (400, True)
    assert service.get("/stats")["calls"] == 0


def test_a_dead_endpoint_is_named(service: Service) -> None:
    service.kill()
    with pytest.raises(APIConnectionError):
        ask()


def test_a_rejected_answer_is_asked_for_again_with_its_reason(service: Service) -> None:
    reasons = iter(["the term is wrong", ""])
    found = unrecorded(run="r", step="s")(Obligations, prompt(), check=lambda _: next(reasons))
    assert {"甲方", "乙方"} == set(found.parties)
    assert service.get("/stats")["calls"] == 2


def test_an_unknown_response_format_is_named(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in ("json_object", "text"):
        monkeypatch.setenv("ONWARD_LLM_RESPONSE_FORMAT", known)
        settings.cache_clear()
        assert ask().obligations
    monkeypatch.setenv("ONWARD_LLM_RESPONSE_FORMAT", "yaml")
    settings.cache_clear()
    with pytest.raises(ValidationError, match="llm_response_format"):
        ask()
