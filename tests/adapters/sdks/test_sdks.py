"""The plain SDKs in a real worker: the loops of the examples, killed."""

from typing import Any

import pytest

from models.errors import OnwardError
from tasks import Context
from tasks.adapters.anthropic_sdk import anthropic_client
from tasks.adapters.openai_sdk import openai_client
from tasks.secrets import Secret, fill, fill_header
from tests.adapters.proof import AFTER, Desk


@pytest.mark.parametrize("label", ["openai-sdk", "anthropic-sdk"])
@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(
    desk: Desk, label: str, after: str
) -> None:
    desk.check(label, after)


@pytest.mark.parametrize("client", [openai_client, anthropic_client])
@pytest.mark.parametrize("option", [{"http_client": object()}, {"max_retries": 3}])
def test_what_would_go_past_the_recorder_is_refused(client: Any, option: dict[str, Any]) -> None:
    with pytest.raises(OnwardError, match="is not the caller's to set"):
        client(Context.for_test(), **option)


@pytest.mark.parametrize("key", [Secret("MY_KEY"), "{{secret:MY_KEY}}"])
@pytest.mark.parametrize("client", [openai_client, anthropic_client])
def test_a_key_is_named_and_filled_in_where_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, client: Any, key: Any
) -> None:
    monkeypatch.setenv("ONWARD_SECRET_MY_KEY", "sk-named-by-the-author")

    held = client(Context.for_test(), api_key=key).api_key

    assert held == "{{secret:MY_KEY}}"
    assert fill_header("Authorization", f"Bearer {held}") == "Bearer sk-named-by-the-author"
    assert fill(held) == held, "a document that spells it gets nothing"
