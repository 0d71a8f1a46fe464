"""Credentials in what is submitted: refused before anything is stored, since inputs are recorded as they are.

Found by the name of a field (``api_key``, ``db_password``, ``X-Auth-Token``) and by the look of a value
(``ghp_...``, ``AKIA...``, ``Bearer ...``, a private key, a JWT, a URL with a password), wherever it stands. Counts and
flags pass, and so do page tokens, ids, placeholders and references.
"""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

from models import redaction
from models.errors import OnwardError
from models.messages import path_of
from models.secret import Secret, unmarked

#: Ends of names, as words. The first kind holds numbers too, the last ones also what is no credential.
_PASSWORDS = ("password", "passwords", "passwd", "passphrase", "pwd", "passcode")
_KEYS = (
    "api key", "api keys", "apikey", "apikeys", "access key", "access keys", "secret key", "secret keys",
    "private key", "private keys", "signing key", "encryption key", "auth key", "account key", "secret",
    "client secrets", "credential", "credentials", "authorization", "cookie", "connection string", "api token",
    "api tokens", "access token", "access tokens", "auth token", "bearer token", "refresh token",
    "subscription key", "master key", "session key", "ssh key", "hmac key", "openai key", "anthropic key",
    "azure key", "stripe key", "db pass", "database pass", "smtp pass", "mail pass", "redis pass", "user pass",
)  # fmt: skip
_TOKENS = ("token", "bearer", "jwt")
_PASSING_TOKENS = frozenset({
    "page", "continuation", "next", "sync", "cursor", "csrf", "xsrf", "previous", "start", "stop", "end", "pad",
})  # fmt: skip
#: A pair such as {"name": "Authorization", "value": "..."}.
_PAIR_NAMES, _PAIR_VALUES = ("name", "key", "header", "field"), ("value", "val")

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"\s*|\*+|x{3,}|\.{3}|(?:(?:Bearer|Basic|Token) )?(?:\{\{.*\}\}|\$\{.*\}|<.*>|\[.*\]|%\w+%)|none|null|n/a|redacted",
    re.IGNORECASE | re.DOTALL,
)
#: What values begin with, and the rest of what makes them one. Not in the middle of a longer word.
_BEGINNINGS = {
    "sk-": r"(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}",
    "sk_live_": r"[A-Za-z0-9]{16,}",
    "sk_test_": r"[A-Za-z0-9]{16,}",
    "rk_live_": r"[A-Za-z0-9]{16,}",
    "whsec_": r"[A-Za-z0-9+/=]{20,}",
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{20,}"),
    "github_pat_": r"[A-Za-z0-9_]{20,}",
    "glpat-": r"[A-Za-z0-9_-]{20,}",
    **dict.fromkeys(("AKIA", "ASIA"), r"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    "xox": r"[abeprs]-[A-Za-z0-9-]{10,}",
    "AIza": r"[0-9A-Za-z_-]{35}",
    "ya29.": r"[0-9A-Za-z_-]{20,}",
    "hf_": r"[A-Za-z0-9]{30,}",
    "npm_": r"[A-Za-z0-9]{30,}",
    "pypi-": r"[A-Za-z0-9_-]{40,}",
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",
    "eyJ": r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    **dict.fromkeys(("Bearer ", "bearer "), r"(?=[\w.~+/-]*[0-9])[\w.~+/-]{16,}"),
    **dict.fromkeys(("Basic ", "basic "), r"(?=[A-Za-z0-9+/]*[0-9=])[A-Za-z0-9+/]{12,}=*"),
    **dict.fromkeys(
        ("Authorization: ", "authorization: "),
        r"(?:(?:Bearer|Basic|Token) (?![{$<*\[])\S{4,}|(?:[A-Za-z]+ )?(?=\S*[0-9])\S{12,})",
    ),
}
_ANYWHERE = {
    "-----BEGIN ": r"(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "hooks.slack.com/services/": r"\w+/\w+/\w{16,}",
    "://": r"[^\s/:@'\"<>{}$]*:(?![*<{$\[])[^\s/@'\"]{3,}@",
}
#: (what a text must hold, what is looked for): a text without the first, as most are, is searched at memory's speed.
_LOOKS = [
    (begin, re.compile(rf"{re.escape(begin)}(?<![A-Za-z0-9_-]{re.escape(begin)}){rest}"))
    for begin, rest in _BEGINNINGS.items()
] + [(begin, re.compile(re.escape(begin) + rest)) for begin, rest in _ANYWHERE.items()]
_SHORTEST = 8  #: characters, of a URL with a password: most names of fields need no search
_LONGEST_NAME = 64  #: characters of a field's name whose look is remembered
#: Parts of names that may be a credential's.
_SUSPECT = (
    "pass", "pwd", "secret", "key", "token", "credential", "authori", "cookie", "bearer", "jwt", "connection",
)  # fmt: skip
_LEAVES = (Secret, SecretStr, SecretBytes, str, bytes, int, float)
_DEEPEST = 100  #: containers within containers; the journal refuses more


class CredentialRefused(OnwardError):
    """A field of what was submitted looks like a credential. Nothing was stored."""

    error_type = "credential_refused"


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What may look like a credential."""

    names: frozenset[str]
    values: Set[object]


def refuse_credentials(
    structure: object, allowed: Collection[str] = (), *, subject: str = "the input",
    checked: Set[object] = frozenset(),
) -> None:  # fmt: skip
    """Raise ``CredentialRefused`` for the first field that looks like a credential, without its value.

    ``allowed``: names of fields, or dotted paths from the top, that are none; ``checked``: values that have passed
    elsewhere. What this process knows as the value of a secret is refused even there.
    """
    for steps, why in _suspects(structure, (), _Allowed(frozenset(allowed), checked), name=None):
        field = ".".join(step for step in steps if type(step) is str) or "field"
        raise CredentialRefused(
            f"{subject}: {path_of(steps)} looks like a credential ({why}), and what is submitted is recorded. "
            f'Nothing was stored. Give a reference instead, Secret("NAME") or {{"$secret": "NAME"}} in JSON, '
            f"which is looked up where it is used; or say that it is none: "
            f'@workflow(..., allow_credentials=("{field}",))'
        )


def values_in(structure: Any) -> Iterator[object]:
    """Every text and number of a structure."""
    if isinstance(structure, Mapping):
        for item in structure.values():
            yield from values_in(item)
    elif isinstance(structure, list | tuple | set | frozenset):
        for item in structure:
            yield from values_in(item)
    elif isinstance(structure, str | bytes | int | float):
        yield structure


def is_suspect(text: str) -> bool:
    """Whether canonical JSON may hold a credential, at a glance."""
    small = text.lower()
    return any(part in small for part in _SUSPECT) or _is_secret_text(text)


def is_credential(value: object, name: str | None = None) -> bool:
    """Whether a single value, under this name, looks like a credential."""
    return isinstance(value, _LEAVES) and bool(_why(value, name, is_allowed=False))


def is_credential_name(name: str) -> bool:
    """Whether what goes by this name is usually a credential."""
    return _kind(name) is not None


def _suspects(
    value: Any, steps: tuple[object, ...], allowed: _Allowed, *, name: str | None
) -> Iterator[tuple[tuple[object, ...], str]]:
    """Where something looks like a credential, and why. ``name``: of the field that it is in."""
    if value is None or len(steps) > _DEEPEST:
        return
    if isinstance(value, _LEAVES):
        passes = value in allowed.values or _is_allowed(steps, allowed.names)
        why = _why(value, name, is_allowed=passes)
        if why:
            yield steps, why
    elif (named := _fields_of(value)) is not None:
        yield from _in_mapping(named, steps, allowed)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for place, item in enumerate(value):
            yield from _suspects(item, (*steps, place), allowed, name=name)


def _in_mapping(
    value: Mapping[Any, Any], steps: tuple[object, ...], allowed: _Allowed
) -> Iterator[tuple[tuple[object, ...], str]]:
    for key, item in value.items():
        if type(key) is str and _is_secret_key(key):
            yield steps, "a key in it does"
            continue
        yield from _suspects(item, (*steps, key), allowed, name=key if type(key) is str else None)
    said = next((value[one] for one in _PAIR_NAMES if type(value.get(one)) is str), None)
    for one in _PAIR_VALUES if said else ():
        if one in value:
            yield from _suspects(value[one], (*steps, one), allowed, name=said)


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return {**vars(value), **(value.model_extra or {})}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in fields(value)}
    return None


def _why(value: Any, name: str | None, *, is_allowed: bool) -> str | None:
    if isinstance(value, Secret):
        return "the reference has it for a name" if _is_secret_text(value.name) else None
    if isinstance(value, SecretStr | SecretBytes):
        return "its type"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str) and redaction.is_known(value):
        return "it holds the value of a secret that is known here"
    if is_allowed:
        return None
    kind = _kind(name) if name else None
    if kind and _fits(value, kind):
        return "its name"
    if isinstance(value, str) and _looks_like_one(value):
        return "its value"
    return None


def _fits(value: str | float, kind: str) -> bool:
    """Whether a value under such a name is one, and not a count, a flag or a placeholder."""
    if isinstance(value, bool):
        return False
    if not isinstance(value, str):
        return kind == "password" and isinstance(value, int)
    if _PLACEHOLDER.fullmatch(unmarked(value)):
        return False
    if kind == "password":
        return True
    if kind == "token" and _UUID.fullmatch(value):
        return False
    # More words are prose: an authorization in a contract, a secret in a tale.
    return len(value.split()) <= 2


@lru_cache(maxsize=4096)
def _kind(name: str) -> str | None:
    words = _NO_LETTER.sub(" ", _HUMP.sub(" ", name)).lower().strip()
    if any(_ends(words, end) for end in _PASSWORDS):
        return "password"
    if any(_ends(words, end) for end in _KEYS):
        return "key"
    if any(_ends(words, end) for end in _TOKENS):
        before = words.split()[:-1]
        return None if before and before[-1] in _PASSING_TOKENS else "token"
    return None


def _ends(words: str, end: str) -> bool:
    return words == end or words.endswith(" " + end)


def _is_secret_text(text: str) -> bool:
    text = unmarked(text)
    return redaction.is_known(text) or _looks_like_one(text)


def _is_secret_key(key: str) -> bool:
    """As ``_is_secret_text``; the same few names come with every submission."""
    key = unmarked(key)
    look = _name_looks_like_one if len(key) <= _LONGEST_NAME else _looks_like_one
    return redaction.is_known(key) or look(key)


@lru_cache(maxsize=4096)
def _name_looks_like_one(name: str) -> bool:
    return _looks_like_one(name)


def _looks_like_one(text: str) -> bool:
    if len(text) < _SHORTEST:
        return False
    return any(begin in text and pattern.search(text) for begin, pattern in _LOOKS)


def _is_allowed(steps: tuple[object, ...], allowed: Set[str]) -> bool:
    """By the field's name, or by the dotted path to it or to what it is in."""
    if not allowed:
        return False
    names = [step for step in steps if type(step) is str]
    return bool(names) and (
        names[-1] in allowed
        or any(".".join(names[:end]) in allowed for end in range(1, len(names) + 1))
    )
