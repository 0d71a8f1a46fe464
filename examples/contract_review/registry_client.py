"""Filing a conclusion over HTTP: one request, one filing id, or a clear error."""

import http.client
import json
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from examples.contract_review.errors import RegistryRefused, RegistryUnavailable
from examples.contract_review.values import Conclusion

#: Counts by which a filing registry says whether anything was filed twice.
COUNTED = frozenset({"filings", "distinct_documents", "duplicate_filings"})
TIMEOUT = 30.0  #: seconds; the registry answers in milliseconds, or is restarting


def file_conclusion(
    conclusion: Conclusion, *, run: str, key: str, environ: Mapping[str, str] = os.environ
) -> str:
    """File under ``key`` and return the filing's id.

    RegistryUnavailable leaves open whether the filing happened: the answer may have been lost on
    its way back. The same key makes it safe to send again.
    """
    base_url = environ.get("ONWARD_REGISTRY_URL", "")
    if not base_url:
        raise RegistryRefused("no registry is configured: set ONWARD_REGISTRY_URL to its address")
    filing = {"run": run, "document": conclusion.source.uri, "digest": conclusion.source.digest}
    body = json.dumps({**filing, "conclusion": conclusion.model_dump(mode="json")}).encode()
    status, answer = _post(base_url, body, key)
    filing_id = answer.get("id")
    if status in (200, 201) and isinstance(filing_id, str):
        return filing_id
    message = f"{base_url} answered {status}: {json.dumps(answer)[:300]}"
    if 400 <= status < 500 and status not in (408, 429):
        raise RegistryRefused(message)
    raise RegistryUnavailable(message)


def counts(environ: Mapping[str, str] = os.environ) -> dict[str, int] | None:
    """What the registry has counted itself; None where none is named that keeps such counts."""
    base_url = environ.get("ONWARD_REGISTRY_URL", "")
    if not base_url:
        return None
    try:
        status, answer = _ask(base_url, "GET", "/stats")
    except (OSError, http.client.HTTPException, ValueError):
        return None
    found = {name: value for name, value in answer.items() if isinstance(value, int)}
    return found if status == 200 and found.keys() >= COUNTED else None


def _post(base_url: str, body: bytes, key: str) -> tuple[int, dict[str, object]]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    try:
        return _ask(base_url, "POST", "/filings", body=body, headers=headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RegistryUnavailable(
            f"{base_url} did not confirm the filing ({type(error).__name__}: {error}); "
            "sending it again under the same key is safe"
        ) from error


def _ask(
    base_url: str, method: str, path: str, *,
    body: bytes | None = None, headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, object]]:  # fmt: skip
    """Plain ``http.client``: no proxy stands between a worker and a registry of its network."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RegistryRefused(f"ONWARD_REGISTRY_URL={base_url!r} is not an http(s) address")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT)
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, dict(headers or {}))
        response = connection.getresponse()
        answer = json.loads(response.read())
        return response.status, answer if isinstance(answer, dict) else {"answer": answer}
    finally:
        connection.close()
