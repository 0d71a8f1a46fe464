"""What becomes of a request: what is sent, what is recorded, and what makes it the same again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from models.errors import OnwardError, ValueMismatch
from tasks import Effect, Tool, tool_registry
from tasks.errors import DefinitionError


class Report(BaseModel):
    title: str
    pages: int = 1
    requested_at: str = ""
    credentials: str = ""


class Filing(BaseModel):
    filing_id: str


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone with it."""
    monkeypatch.setattr(tool_registry, "_tools", dict(tool_registry._tools))


class Filer(Tool[Report, Filing], abstract=True):
    name, effect = "t.filer", Effect.ONCE
    volatile, secret = frozenset({"requested_at"}), frozenset({"credentials"})


def test_a_request_is_recorded_without_secrets_and_bound_without_what_varies() -> None:
    first = Filer().asked(Report(title="t", requested_at="noon", credentials="CANARY"))
    again = Filer().asked(Report(title="t", requested_at="one", credentials="rotated"))
    assert first.value == Report(title="t", requested_at="noon", credentials="CANARY")
    assert first.recorded == '{"title":"t","pages":1,"requested_at":"noon"}'
    assert first.digest == again.digest
    assert first.digest != Filer().asked(Report(title="t", pages=2)).digest


def test_secrets_within_lists_are_left_out_by_their_path() -> None:
    class Parts(Tool[dict[str, Any], Any], abstract=True):
        name, effect = "t.parts", Effect.ONCE
        secret = frozenset({"parts.token"})

    asked = Parts().asked({"parts": [{"token": "CANARY", "n": 1}, {"n": 2}], "token": "kept"})
    assert asked.recorded == '{"parts":[{"n":1},{"n":2}],"token":"kept"}'
    assert asked.value["parts"][0]["token"] == "CANARY"


def test_a_secret_field_that_a_look_up_could_not_do_without_needs_a_default() -> None:
    @dataclass
    class Login:
        user: str
        password: str

    class SignIn(Tool[Login, Any], abstract=True):
        name, effect = "t.sign-in", Effect.ONCE
        secret = frozenset({"password"})

    with pytest.raises(
        DefinitionError, match=r"without its secret fields \(password\).*give them defaults"
    ):
        SignIn().asked(Login("me", "CANARY"))


def test_a_secret_that_requests_do_not_have_is_refused_and_not_recorded() -> None:
    class Misspelled(Filer, abstract=True):
        name, secret = "t.misspelled", frozenset({"credential"})

    with pytest.raises(DefinitionError, match=r"names credential, .* they have credentials, pages"):
        Misspelled().asked(Report(title="t", credentials="CANARY"))


def test_a_request_that_does_not_fit_is_not_quoted_where_fields_are_secret() -> None:
    with pytest.raises(ValueMismatch, match="is not shown") as caught:
        Filer().asked({"title": 1, "credentials": "CANARY"})
    assert "CANARY" not in "".join(map(repr, _chain(caught.value)))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what a traceback would show of its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_request_that_the_journal_cannot_hold_is_refused() -> None:
    class Loose(Tool[Any, Any], abstract=True):
        name, effect = "t.loose", Effect.ONCE

    with pytest.raises(OnwardError, match="cannot be recorded"):
        Loose().asked({"file": object()})
    with pytest.raises(OnwardError, match="ONWARD_OUTPUT_LIMIT"):
        Loose().asked("x" * 300_000)


def test_c27_a_secret_under_a_key_that_is_no_text_is_neither_recorded_nor_counted() -> None:
    class ByNumber(Tool[dict[str, dict[int, dict[str, str]]], Any], abstract=True):
        name, effect = "t.by-number", Effect.ONCE
        secret = frozenset({"users.1.token"})

    first, again = (
        ByNumber().asked({"users": {1: {"token": token, "name": "n"}}}) for token in ("CANARY", "x")
    )
    assert "CANARY" not in first.recorded
    assert first.digest == again.digest
