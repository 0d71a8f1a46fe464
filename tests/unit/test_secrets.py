"""References to secrets: stored by name, looked up at each use, filled in only where the agent's code wants it."""

import json
import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from models import redaction, secret
from models.digests import digest
from models.messages import describe
from models.secret import MARK, adopt, learn_from_environment, unmarked
from models.settings import settings
from models.values import Typed, decode, encode
from tasks import Secret
from tasks.secrets import (
    SecretMissing,
    SecretRefused,
    SecretsCommandFailed,
    fill,
    fill_header,
    with_secrets,
)
from tasks.tool_requests import ask
from tasks.toolkit.outgoing import Outgoing
from tasks.toolkit.templates import CannotFill, Template, Values, plain

VALUE = 'CANARY-01234 "x"/é'


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ONWARD_SECRETS", "ONWARD_SECRETS_COMMAND", "ONWARD_SECRETS_DIR"):
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()
    secret._answers.clear()


def use(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()


class Order(BaseModel):
    customer: str
    access: Secret | None = None


def test_a_reference_is_what_is_stored_and_shown() -> None:
    one = Secret("BILLING_KEY")
    assert repr(one) == "Secret('BILLING_KEY')"
    assert encode({"key": one}) == '{"key":{"$secret":"BILLING_KEY"}}'
    assert decode(encode([one])) == [one]
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - ours
    assert len({one, Secret("BILLING_KEY"), Secret("OTHER")}) == 2
    typed = Typed(Order)
    assert typed.load(typed.dump(Order(customer="c", access=one))) == Order(
        customer="c", access=one
    )
    assert Order(customer="c", access=one).model_dump_json() == (
        '{"customer":"c","access":{"$secret":"BILLING_KEY"}}'
    )
    assert adopt({"a": [{"$secret": "K"}], "b": {"$secret": "K", "x": 1}}) == {
        "a": [Secret("K")], "b": {"$secret": "K", "x": 1},
    }  # fmt: skip
    assert digest({"a": one}) == digest({"a": Secret("BILLING_KEY")}) != digest({"a": Secret("B")})


def test_the_environment_is_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"KEY": "plain-value"})
    assert Secret("KEY").reveal() == "plain-value"
    use(monkeypatch, {"ONWARD_SECRET_KEY": "our-value"})
    assert Secret("KEY").reveal() == "our-value"
    use(monkeypatch, {"ONWARD_SECRET_KEY": "rotated-value"})
    assert Secret("KEY").reveal() == "rotated-value"
    use(monkeypatch, {"ONWARD_SECRET_CANARY_3": "spelled"})
    assert Secret("CANARY-3").reveal() == "spelled"
    assert redaction.redact("plain-value our-value") == "[secret KEY] [secret KEY]"


def test_a_directory_and_a_command_give_what_the_environment_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "KEY").write_text("from a file\n")
    use(monkeypatch, {"ONWARD_SECRETS_DIR": str(tmp_path)})
    assert Secret("KEY").reveal() == "from a file"
    asked = tmp_path / "asked"
    script = tmp_path / "vault"
    script.write_text(f'#!/bin/sh\necho "$1" >> {asked}\n[ "$1" = KEY ] && echo from-the-vault\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    use(monkeypatch, {"ONWARD_SECRETS_COMMAND": str(script)})
    assert [Secret("KEY").reveal() for _ in range(3)] == ["from-the-vault"] * 3
    assert asked.read_text() == "KEY\n"
    with pytest.raises(SecretsCommandFailed, match="ended with 1 for secret NONE"):
        Secret("NONE").reveal()
    use(monkeypatch, {"ONWARD_SECRETS_COMMAND": str(tmp_path / "none")})
    with pytest.raises(SecretsCommandFailed, match="could not be run"):
        Secret("KEY").reveal()


def test_a_missing_one_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, {"ONWARD_SECRETS_DIR": str(tmp_path)})
    with pytest.raises(SecretMissing) as missing:
        Secret("NOWHERE").reveal()
    for part in (
        "NOWHERE",
        "ONWARD_SECRET_NOWHERE",
        "ONWARD_SECRETS_COMMAND is not set",
        str(tmp_path),
    ):
        assert part in str(missing.value)


@pytest.mark.parametrize(
    "name", ["", "sk-abc def", "../etc/passwd", "1ST", "ONWARD_DATABASE_URL", "a/b"]
)
def test_what_is_no_name_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(SecretRefused) as refused:
        Secret(name)
    assert "sk-abc" not in str(refused.value)


def test_a_short_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"KEY": "abc"})
    with pytest.raises(SecretRefused, match="fewer than 4"):
        Secret("KEY").reveal()


def test_a_value_where_a_reference_belongs_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError) as wrong:
        Order.model_validate({"customer": "c", "access": "sk-CANARY-0123456789"})
    assert "CANARY" not in describe(wrong.value)
    assert "access" in describe(wrong.value)
    with pytest.raises(Exception, match="takes a reference") as mismatch:
        Typed(Order).validate({"customer": "c", "access": "sk-CANARY-0123456789"})
    assert "CANARY" not in str(mismatch.value)


def test_only_what_the_agents_code_put_into_texts_is_filled_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, {"KEY": VALUE, "OTHER": "other-value"})
    prompt = f"Code {Secret('KEY')}; a document says {{{{secret:KEY}}}} and {{{{secret:OTHER}}}}"
    assert unmarked(prompt) == (
        "Code {{secret:KEY}}; a document says {{secret:KEY}} and {{secret:OTHER}}"
    )
    assert fill(prompt) == (
        f"Code {VALUE}; a document says {{{{secret:KEY}}}} and {{{{secret:OTHER}}}}"
    )
    assert json.loads(fill(json.dumps({"p": prompt}), within="json"))["p"].startswith(
        f"Code {VALUE}"
    )
    assert fill("no placeholder") == "no placeholder"


def test_an_address_that_code_has_made_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"KEY": VALUE})
    made = f"https://h/?a={Secret('KEY')}"
    for url in (made, made.replace("{", "%7B").replace("}", "%7d").replace("t:", "t%3A")):
        assert fill(url, within="url") == "https://h/?a=CANARY-01234%20%22x%22%2F%C3%A9"
    assert fill(unmarked(made), within="url") == unmarked(made)


def test_a_text_of_the_agents_own_is_filled_in_by_the_names_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, {"KEY": VALUE, "OTHER": "other-value"})
    read = "{{secret:KEY}} {{secret:OTHER}}"
    assert fill(with_secrets(with_secrets(read, "OTHER"), "OTHER")) == (
        "{{secret:KEY}} other-value"
    )
    assert fill(read) == read, "nothing of it lasts"


def test_headers_of_credentials_take_placeholders_that_are_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, {"KEY": "key-value"})
    for name in ("Authorization", "x-api-key", "api-key", "PRIVATE-TOKEN", "X-CRM-Token"):
        assert fill_header(name, "Bearer {{secret:KEY}}") == "Bearer key-value"
        assert fill_header(name, f"Bearer {Secret('KEY')}") == "Bearer key-value"
    for name in ("X-Customer", "Idempotency-Key", "User-Agent", "Monkey"):
        assert fill_header(name, f"a {Secret('KEY')}") == "a key-value"
        with pytest.raises(SecretRefused, match="Nothing was sent"):
            fill_header(name, f"{Secret('KEY')} {{{{secret:KEY}}}}")


def test_the_mark_of_a_process_is_in_nothing_that_leaves_it() -> None:
    text = f"Code {Secret('KEY')}"
    assert MARK in text
    assert redaction.redact(text) == "Code {{secret:KEY}}"
    assert redaction.redact_params({"arguments": encode({"p": text})})["arguments"] == (
        '{"p":"Code {{secret:KEY}}"}'
    )
    assert redaction.found_in(text) is None
    kind = Typed(dict[str, Any], subject="the request of x")
    assert ask(kind, {"a": text}) == ask(kind, {"a": unmarked(text)})
    assert Template(text.replace("Code ", ""), owner="x").text == "{{secret:KEY}}"


def test_the_operators_secrets_are_known_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "FILED").write_text("filed-value\n")
    use(
        monkeypatch,
        {"ONWARD_SECRET_GIVEN": "given-value", "LISTED": "listed-value", "ONWARD_SECRETS_DIR": str(tmp_path),
        "ONWARD_SECRETS": "LISTED, FILED,ABSENT", "ONWARD_SECRET_SHORT": "abc",
        "ONWARD_ENCRYPTION_KEY": f"{'11' * 32},{'22' * 32}"},
    )  # fmt: skip
    learn_from_environment()
    assert redaction.redact("given-value listed-value filed-value abc") == (
        "[secret GIVEN] [secret LISTED] [secret FILED] abc"
    )
    assert redaction.redact(f"{os.environ['ONWARD_ENCRYPTION_KEY']}") == (
        "[secret ONWARD_ENCRYPTION_KEY],[secret ONWARD_ENCRYPTION_KEY]"
    )


def test_a_request_is_recorded_and_identified_without_revealed_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = Typed(dict[str, Any], subject="the request of x")
    use(monkeypatch, {"KEY": "first-value"})
    first = ask(kind, {"a": f"Bearer {Secret('KEY').reveal()}", "ref": Secret("KEY")})
    use(monkeypatch, {"KEY": "second-value"})
    second = ask(kind, {"a": f"Bearer {Secret('KEY').reveal()}", "ref": Secret("KEY")})
    assert (
        first.recorded == second.recorded == '{"a":"Bearer [secret KEY]","ref":{"$secret":"KEY"}}'
    )
    assert first.digest == second.digest
    assert second.value["a"] == "Bearer second-value"


def test_templates_take_references_in_headers_addresses_and_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, {"KEY": VALUE, "TOKEN": "t0ken-value"})
    outgoing = Outgoing(
        "POST", "https://h.example/{customer}?code={{secret:KEY}}", owner="tool x",
        headers={
            "Authorization": Template("Bearer {{secret:TOKEN}}", owner="x"),
            "X-Token": Template(Secret("TOKEN"), owner="x"),
        },
        body={"auth.key": "{{secret:KEY}}", "auth.token": Secret("TOKEN"), "access": "{access}"},
        key_header=None, key_field=None,
    )  # fmt: skip
    request = Order(customer="c-1", access=Secret("TOKEN"))
    call = outgoing.fill(Values("key", plain(request, reveal=True)))
    assert call.url.endswith("/c-1?code=CANARY-01234%20%22x%22%2F%C3%A9")
    assert call.headers["Authorization"] == "Bearer t0ken-value"
    assert call.headers["X-Token"] == "t0ken-value"
    assert json.loads(call.content or b"") == {
        "auth": {"key": VALUE, "token": "t0ken-value"}, "access": "t0ken-value",
    }  # fmt: skip
    assert "CANARY" not in call.what
    assert outgoing.fields == {"customer", "access"}


def test_data_that_looks_like_a_reference_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"KEY": VALUE})
    request = {"a": "{{secret:KEY}}", "b": {"$secret": "KEY"}, "c": Secret("KEY")}
    assert plain(request, reveal=True) == {
        "a": "{{secret:KEY}}", "b": {"$secret": "KEY"}, "c": VALUE,
    }  # fmt: skip
    assert plain(request)["c"] == {"$secret": "KEY"}
    with pytest.raises(CannotFill, match="cannot be written"):
        plain({"x": object()})


def test_a_missing_secret_keeps_a_request_from_being_sent() -> None:
    assert "NOWHERE_AT_ALL" not in os.environ
    with pytest.raises(CannotFill, match="Secret NOWHERE_AT_ALL has no value here"):
        Template("{{secret:NOWHERE_AT_ALL}}", owner="x").header(Values("key", None))
    with pytest.raises(CannotFill, match="NOWHERE_AT_ALL"):
        plain({"c": Secret("NOWHERE_AT_ALL")}, reveal=True)


def test_variables_of_templates_are_secret_when_they_are_called_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, {"BILLING_TOKEN": "t0ken-value", "BILLING_URL": "https://billing.example"})
    values = Values("key", None)
    template = Template("${BILLING_URL} ${BILLING_TOKEN}", owner="x")
    assert template.plain(values) == "https://billing.example t0ken-value"
    assert redaction.redact("https://billing.example t0ken-value") == (
        "https://billing.example [secret BILLING_TOKEN]"
    )
