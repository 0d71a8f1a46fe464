"""Which request is the same request: the digest that a record is checked against.

It covers method, URL, dialect and every field of the body, in any order of keys; never headers, which hold
keys, dates and numbers of tries. Texts are compared as they are recorded, with secrets struck out, so that a
rotated key leaves the digest as it was.
"""

import hashlib
import json
import re
from base64 import b64decode, b64encode
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from models.digests import digest_text

#: Query fields that services take credentials in. Their values are neither recorded nor compared.
_CREDENTIAL = re.compile(
    r"(^|[_-])(api[_-]?key|access[_-]?token|token|secret|sig|signature|password)$", re.IGNORECASE
)
_LONG = 20  #: characters from which a field that is just called ``key`` holds one of a service


def digest(*, method: str, url: str, dialect: str, body: str) -> str:
    """The digest of a request in the form in which it is recorded."""
    parts = [method.upper(), url, dialect, _canonical(body)]
    return digest_text(json.dumps(parts, ensure_ascii=True, separators=(",", ":")))


def recordable_url(url: str) -> str:
    """A URL without user, password, fragment and the values of credentials."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    fields = parse_qsl(parts.query, keep_blank_values=True)
    query = parts.query
    if any(_is_credential(name, value) for name, value in fields):
        query = urlencode(
            [(name, "[secret]" if _is_credential(name, value) else value) for name, value in fields]
        )
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def _is_credential(name: str, value: str) -> bool:
    return _CREDENTIAL.search(name) is not None or (name.lower() == "key" and len(value) >= _LONG)


def as_text(body: bytes) -> str:
    """A body as the journal holds it: text as it is, anything else in base64 with its digest before it."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if body and (not text or "\0" in text or text.startswith(_BINARY)):
        return f"{_BINARY}{hashlib.sha256(body).hexdigest()};{b64encode(body).decode('ascii')}"
    return text


_BINARY = "onward-bytes:sha256="


def as_bytes(text: str) -> bytes:
    """The body that ``as_text`` was given."""
    if not text.startswith(_BINARY):
        return text.encode("utf-8")
    return b64decode(text.partition(";")[2])


def _canonical(body: str) -> str:
    try:
        return json.dumps(
            json.loads(body), ensure_ascii=True, sort_keys=True, separators=(",", ":")
        )
    except (ValueError, RecursionError):
        return digest_text(body)
