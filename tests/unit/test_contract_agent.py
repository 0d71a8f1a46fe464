"""The agent's plan and its wrappers."""

from pathlib import Path
from typing import Any

import pytest

from examples.contract_review import agent, work
from examples.contract_review.errors import UnreadableDocument
from examples.contract_review.model_rules import answer
from examples.contract_review.prompts import Prompt
from examples.contract_review.values import Material, Outline
from models.settings import settings
from models.values import Typed, decode
from tasks import Context
from tasks.llm import NotConfigured
from tests.support.contracts import CHINESE, ENGLISH, document, prepared

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


def test_without_a_model_the_step_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONWARD_LLM_MODEL", raising=False)
    settings.cache_clear()
    with pytest.raises(NotConfigured, match="set ONWARD_LLM_MODEL"):
        agent.obligations(Context.for_test(), prepared())


@pytest.mark.parametrize("text", [ENGLISH, CHINESE * 100])
def test_every_value_survives_the_journal_and_stays_far_below_its_limit(text: str) -> None:
    def ask(kind: Any, prompt: Prompt, /, *, check: Any) -> Any:
        found = kind.model_validate(answer(prompt.user))
        assert check(found) == ""
        return found

    read = document(text)
    material, skeleton = work.retrieve(read), work.outline(read)
    found = work.find_obligations(material, skeleton, ask=ask)
    weighed = work.find_risks(found, ask=ask)
    reviewed = work.summarise(weighed, ask=ask)
    for value in (read, material, skeleton, found, weighed, reviewed, work.conclude(reviewed)):
        recorded = Typed(type(value)).dump(value, limit=200 * 1024)
        assert Typed(type(value)).load(recorded) == value
    gathered = [decode(Typed(type(value)).dump(value)) for value in (material, skeleton)]
    assert Typed(tuple[Material, Outline]).validate(gathered) == (material, skeleton)
