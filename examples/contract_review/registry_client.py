"""Filing a conclusion over HTTP: one request, one filing; and asking whether it was filed."""

import http.client
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict

from examples.contract_review.errors import RegistryRefused, RegistryUnavailable
from examples.contract_review.values import Conclusion
from tasks import Absent, Effect, Found, NotSent, Tool, Undecided

#: Counts by which a filing registry says whether anything was filed twice.
COUNTED = frozenset({"filings", "distinct_documents", "duplicate_filings"})
TIMEOUT = 5.0  #: seconds; the registry answers in milliseconds, or is restarting


class Filing(BaseModel):
    """What is filed: a conclusion, under the run that reached it."""

    model_config = ConfigDict(frozen=True)

    run: str
    conclusion: Conclusion


class FileConclusion(Tool[Filing, str]):
    """A filing in the registry, which files whatever it is asked to, as often as it is asked.

    It honours no key, so a lost answer cannot be cured by asking again. It can be asked what is filed for a
    run and a document, and that is what happens after a crash or a lost answer.
    """

    name, version = "registry.file", "1"
    effect = Effect.QUERYABLE
    timeout = timedelta(seconds=TIMEOUT)
    max_request_lifetime = timedelta(
        seconds=2
    )  # a request of a dead connection is read at once or never

    def execute(self, request: Filing, *, key: str) -> str:  # noqa: ARG002 - the registry knows no keys
        """File it; the answer is the filing's id."""
        return file_conclusion(request.conclusion, run=request.run)

    def lookup(self, request: Filing, *, key: str) -> Found[str] | Absent | Undecided:  # noqa: ARG002
        """What is filed for this run and document."""
        query = urlencode({"run": request.run, "document": request.conclusion.source.uri})
        status, answer = _request(_base_url(os.environ), "GET", f"/filings?{query}")
        filed = answer.get("filings")
        if status != 200 or not isinstance(filed, list):
            raise RegistryUnavailable(f"the registry answered {status} to a look-up")
        match [one["id"] for one in filed]:
            case []:
                return Absent()
            case [filing_id]:
                return Found(filing_id)
            case several:
                return Undecided(f"it was filed {len(several)} times: {', '.join(several)}")

    def compensate(self, request: Filing, result: str, *, key: str) -> None:  # noqa: ARG002
        """Withdraw the filing; one that is gone already is as good."""
        base_url = _base_url(os.environ)
        status, answer = _request(base_url, "DELETE", f"/filings/{quote(result, safe='')}")
        if status not in (200, 404):
            raise _problem(base_url, status, answer)


def file_conclusion(
    conclusion: Conclusion, *, run: str, environ: Mapping[str, str] = os.environ
) -> str:
    """File and return the filing's id.

    RegistryUnavailable leaves open whether the filing happened: the answer may have been lost on
    its way back.
    """
    base_url = _base_url(environ)
    filing = {"run": run, "document": conclusion.source.uri, "digest": conclusion.source.digest}
    body = json.dumps({**filing, "conclusion": conclusion.model_dump(mode="json")}).encode()
    status, answer = _request(base_url, "POST", "/filings", body=body)
    filing_id = answer.get("id")
    if status == 201 and isinstance(filing_id, str):
        return filing_id
    raise _problem(base_url, status, answer)


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


def _base_url(environ: Mapping[str, str]) -> str:
    base_url = environ.get("ONWARD_REGISTRY_URL", "")
    if not base_url:
        raise RegistryRefused("no registry is configured: set ONWARD_REGISTRY_URL to its address")
    return base_url


def _problem(base_url: str, status: int, answer: Mapping[str, object]) -> Exception:
    message = f"{base_url} answered {status}: {json.dumps(answer)[:300]}"
    refused = 400 <= status < 500 and status not in (408, 429)
    return RegistryRefused(message) if refused else RegistryUnavailable(message)


def _request(
    base_url: str, method: str, path: str, *, body: bytes | None = None
) -> tuple[int, dict[str, object]]:
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        return _ask(base_url, method, path, body=body, headers=headers)
    except ConnectionRefusedError as error:
        raise NotSent(f"{base_url} accepts no connections: {error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RegistryUnavailable(
            f"{base_url} gave no answer to {method} {path.partition('?')[0]} ({type(error).__name__}: {error})"
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
