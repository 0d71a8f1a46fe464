"""The agent's plan and its wrappers."""

from pathlib import Path

import pytest

from examples.contract_review import agent
from examples.contract_review.errors import EndpointRefused, UnreadableDocument
from tasks import Context
from tests.support.contracts import ENGLISH, prepared

STEPS = ["read", "retrieve", "outline", "obligations", "risks", "summary", "conclude", "file"]


def test_the_plan_has_eight_steps_of_which_three_ask_the_llm() -> None:
    plan = agent.contract_review.plan(uri="corpus:altova-eula")
    assert [node.step_key for node in plan.nodes] == STEPS
    assert [node.step_key for node in plan.nodes if node.kind == "llm"] == STEPS[3:6]
    assert next(node for node in plan.nodes if node.step_key == "file").kind == "write"


def test_reading_is_a_plain_call(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(ENGLISH)
    document = agent.read(Context.for_test(), file.as_uri())
    assert agent.outline(Context.for_test(), document).language == "en"
    assert agent.retrieve(Context.for_test(), document).coverage == 1.0


def test_an_unreadable_document_fails_its_own_run_only(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDocument, match=r"cannot read gone\.txt"):
        agent.read(Context.for_test(), (tmp_path / "gone.txt").as_uri())


def test_without_an_endpoint_the_step_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONWARD_LLM_BASE_URL", raising=False)
    with pytest.raises(EndpointRefused, match="set ONWARD_LLM_BASE_URL"):
        agent.obligations(Context.for_test(), prepared())
