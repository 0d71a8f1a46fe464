"""A recorder as the engine makes it, on a claimed step of a real journal, for the tests of requests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from models.journal.values import Claimed
from models.settings import settings
from tasks import Context
from tasks.effects import Ledger
from tasks.recorder.recorder import Recorder
from tests.support.intents import SENDER, again
from tests.support.journal import Journal

_KEYS = ("ONWARD_LLM_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")


@contextmanager
def configured(**environment: str) -> Iterator[None]:
    """Settings from these variables, and no provider's key from elsewhere, while the block lasts."""
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name in _KEYS:
                patched.delenv(name, raising=False)
            for name, value in environment.items():
                patched.setenv(name, value)
            settings.cache_clear()
            yield
    finally:
        settings.cache_clear()


@contextmanager
def attempt(
    claimed: Claimed,
    *,
    trust: Callable[[], object] = lambda: None,
    on_mismatch: str = "block",
) -> Iterator[Context]:
    """The context of one attempt, its body running within."""
    ledger = Ledger(claimed, SENDER, require_trust=trust)
    recorder = Recorder(claimed, SENDER, ledger, require_trust=trust, on_mismatch=on_mismatch)
    with recorder.entered():
        yield Context(
            run_id=claimed.run_id, workflow="toy", version="1", step_key=claimed.step_key,
            attempt=claimed.attempt, require_trust=trust, report_progress=lambda *_: None, calls=ledger,
            http=recorder,
        )  # fmt: skip


def recorder_of(ctx: Context) -> Recorder:
    found = ctx._http
    assert isinstance(found, Recorder)
    return found


@contextmanager
def next_attempt(journal: Journal, claimed: Claimed, **options: Any) -> Iterator[Context]:
    """The attempt after one whose owner has fallen silent."""
    with attempt(again(journal, claimed), **options) as ctx:
        yield ctx


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": "gpt-x", "messages": [{"role": "user", "content": text}], **fields}


def said(response: Any) -> str:
    """What a chat answer says."""
    return str(json.loads(response.content)["choices"][0]["message"]["content"])


def calls(journal: Journal) -> list[tuple[str, int, str, str | None]]:
    """(scope, position, state, verdict) of what is on record, in the order of its answers."""
    rows = journal.rows(
        "SELECT c.scope, c.position, c.state, v.verdict FROM recorded_call c LEFT JOIN call_verdict v"
        " USING (run_id, step_key, generation, scope, position)"
        " ORDER BY c.generation, c.answered_at, c.scope, c.position"
    )
    return [(row["scope"], row["position"], row["state"], row["verdict"]) for row in rows]
