"""What looks like a credential in an input, and what only sounds like one."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr

from models import redaction
from models.credentials import (
    CredentialRefused,
    is_credential,
    is_credential_name,
    is_suspect,
    refuse_credentials,
)
from models.secret import Secret
from models.values import encode

GITHUB = "ghp_" + "Abc123" * 6
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


class Access(BaseModel):
    user: str
    password: str


@dataclass
class Header:
    name: str
    value: str


def path_of_refused(given: object, *allowed: str) -> str:
    with pytest.raises(CredentialRefused) as refused:
        refuse_credentials(given, allowed, subject="input of x")
    said = str(refused.value)
    assert "input of x: $" in said
    return said.removeprefix("input of x: ").partition(" looks like")[0]


@pytest.mark.parametrize(
    "name",
    [
        "api_key", "apiKey", "OPENAI_API_KEY", "openai_api_key", "x-api-key", "password", "db_password",
        "dbPassword", "passwd", "secret", "client_secret", "clientSecret", "token", "auth_token", "accessToken",
        "refresh_token", "Authorization", "authorization", "Proxy-Authorization", "aws_secret_access_key",
        "private_key", "credentials", "Cookie", "connection_string", "HTTPBearer", "GITHUB_TOKEN",
        "OPENAI_KEY", "subscriptionKey", "SMTP_PASS", "db_pass",
    ],
)  # fmt: skip
def test_names_of_credentials_are_known_however_they_are_spelled(name: str) -> None:
    assert is_credential_name(name)
    assert path_of_refused({"config": {name: "sk-CANARY-1"}}).startswith("$.config")


@pytest.mark.parametrize(
    "value",
    [
        "sk-proj-abcdefGHIJKL0123456789", "sk-ant-api03-abcdefghijklmnop0123456789", GITHUB,
        "github_pat_11ABCDEFG0abcdefghijklmnop", "glpat-abcdefghij0123456789", "AKIAIOSFODNN7EXAMPLE",
        "Bearer abcdef0123456789abcdef", "bearer abcdef0123456789abcdef", "Basic dXNlcjpwYXNzd29yZA==",
        "Authorization: Token abcdefgh12345678", "Authorization: Bearer CANARY-2", JWT, "xoxb-1234567890-abcdefghij",
        "sk_live_" + "a1" * 12,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIC", "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----", "postgresql://app:hunter22@db.internal/app", "hf_" + "Ab1" * 11,
        "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", "://:abc@",
    ],
)  # fmt: skip
def test_values_of_credentials_are_known_wherever_they_stand(value: str) -> None:
    for given in ({"text": value}, {"text": f"use ({value}) here"}, {"a": [1, {"b": value}]}):
        assert path_of_refused(given) in ("$.text", "$.a[1].b")
    assert path_of_refused({"notes": {value: 1}}) == "$.notes"
    assert is_suspect(encode({"text": value}))


@pytest.mark.parametrize(
    "given",
    [
        {"tokens": 100}, {"token_count": 17}, {"max_tokens": 4096, "total_tokens": 5},
        {"token": UUID(int=5)}, {"token": str(UUID(int=5))}, {"id": str(UUID(int=5))}, {"next_page_token": "abc123xyz"},
        {"pageToken": "abc"}, {"password": ""}, {"password": None}, {"api_key": "***"}, {"api_key": "{{secret:KEY}}"},
        {"authorization": "Bearer {{secret:KEY}}"}, {"text": "Authorization: Bearer {{secret:KEY}}"},
        {"text": "Authorization: Bearer <your key>"}, {"boarding_pass": "B12"},
        {"api_key": "${KEY}"}, {"api_key": "<redacted>"},
        {"api_key": "[secret KEY]"}, {"api_key": Secret("KEY")}, {"has_secret": True}, {"secret": False},
        {"password_policy": "at least twelve"}, {"api_key_name": "billing"}, {"tokens": ["the", "cat"]},
        {"idempotency_key": "order-17"}, {"key": "contract-17"}, {"public_key": "ssh-ed25519 AAAA"}, {"sort_key": "a"},
        {"keyword": "basic responsibilities"}, {"secretary": "Ms Example"}, {"passenger": "Mr Example"},
        {"authorization": "The board has given its approval on 3 May"}, {"monkey": "banana"},
        {"text": "Bearer of this certificate, the risk-assessment-procedures-2026 and task-force-12345678901234567890"},
        {"url": "https://example.com:8443/a@b"}, {"url": "https://user@example.com/"}, {"sha": "a" * 64},
        {"text": "the sk-learn-based-classifier-pipeline-v"}, {"uri": "file:///tmp/contract.pdf"},
        {"secret_santa": "Alice"}, {"token_type": "bearer"}, {"connection": "fast"}, {"cookies": 3},
    ],
)  # fmt: skip
def test_what_only_sounds_like_one_passes(given: dict[str, Any]) -> None:
    refuse_credentials(given)


def test_models_dataclasses_pairs_and_lists_are_looked_into() -> None:
    assert path_of_refused({"db": Access(user="a", password="b")}) == "$.db.password"  # noqa: S106
    assert path_of_refused({"headers": [Header("X-Api-Key", "abc")]}) == "$.headers[0].value"
    assert path_of_refused({"passwords": ["a", "b"]}) == "$.passwords[0]"
    assert path_of_refused({"pin": SecretStr("1234")}) == "$.pin"
    assert path_of_refused({"key": Secret("sk-proj-abcdef0123456789abcdef")}) == "$.key"
    assert path_of_refused({"password": 12345678}) == "$.password"
    assert path_of_refused({"blob": b"key AKIAIOSFODNN7EXAMPLE"}) == "$.blob"
    refuse_credentials({"api_key": 12345678, "count": range(10**12)})


def test_the_refusal_says_what_to_do_and_nothing_of_the_value() -> None:
    with pytest.raises(CredentialRefused) as refused:
        refuse_credentials({"config": {"openai_api_key": "sk-CANARY-1"}}, subject="input of x")
    said = str(refused.value)
    assert "$.config.openai_api_key" in said
    assert 'Secret("NAME")' in said
    assert 'allow_credentials=("config.openai_api_key",)' in said
    assert "CANARY" not in said


def test_fields_are_allowed_by_name_or_by_path() -> None:
    given = {"config": {"api_key": "abc"}, "token": "t0ken"}
    refuse_credentials(given, ("config.api_key", "token"))
    refuse_credentials(given, ("config", "token"))
    refuse_credentials(given, ("api_key", "token"))
    assert path_of_refused(given, "token") == "$.config.api_key"
    assert path_of_refused(given, "config") == "$.token"


def test_what_is_known_as_a_secret_is_refused_even_where_it_is_allowed() -> None:
    refuse_credentials({"note": "a perfectly dull value"})
    redaction.register("KEY", "perfectly dull")
    assert path_of_refused({"note": "a perfectly dull value"}, "note") == "$.note"
    redaction.register("WEAK", "dull")
    refuse_credentials({"note": "dull"})  # four letters are there by accident


def test_depth_and_cycles_end() -> None:
    circle: dict[str, Any] = {"a": 1}
    circle["self"] = circle
    refuse_credentials(circle)


def test_single_values() -> None:
    assert is_credential("abc", "ONWARD_ENCRYPTION_KEY")
    assert is_credential(GITHUB)
    assert not is_credential(5, "ONWARD_LEASE_TTL")
    assert not is_credential(None, "password")
