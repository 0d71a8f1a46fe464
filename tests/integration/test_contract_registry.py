"""The registry as a real process: a filing for each request, durable, and an honest count."""

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.contract_services import Service, registry


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = registry(tmp_path).start()
    yield running
    running.kill()


def filing(run: str = "run-1", document: str = "corpus:a", wording: str = "fine") -> dict[str, Any]:
    return {
        "run": run,
        "document": document,
        "digest": f"sha256:{document}",
        "conclusion": {"summary": wording},
    }


def file(service: Service, body: dict[str, Any]) -> tuple[int, Any]:
    return service.request("POST", "/filings", body)


def test_every_request_is_a_filing_and_duplicates_are_counted(service: Service) -> None:
    for wording in ("fine", "good", "fine"):
        assert file(service, filing(wording=wording))[0] == 201
    assert service.get("/stats") == {
        "filings": 3,
        "distinct_documents": 1,
        "duplicate_filings": 2,
        "requests": 3,
        "look_ups": 0,
        "responses_dropped": 0,
        "withdrawn": 0,
    }
    assert service.get("/filings/F-000002")["conclusion"] == {"summary": "good"}


def test_two_runs_over_one_document_are_no_duplicates(service: Service) -> None:
    file(service, filing(run="run-1"))
    file(service, filing(run="run-2"))
    assert service.get("/stats")["duplicate_filings"] == 0
    assert [row["run"] for row in service.get("/filings")["filings"]] == ["run-1", "run-2"]
    assert len(service.get("/filings?run=run-2")["filings"]) == 1
    assert len(service.get("/filings?after=1")["filings"]) == 1


def test_it_can_be_asked_what_is_filed_for_a_run_and_a_document(service: Service) -> None:
    filed = file(service, filing(run="run-1", document="corpus:a"))[1]
    file(service, filing(run="run-1", document="corpus:b"))
    found = service.get("/filings?run=run-1&document=corpus:a")["filings"]
    assert [one["id"] for one in found] == [filed["id"]]
    assert service.get("/filings?run=run-2&document=corpus:a")["filings"] == []
    assert service.get("/stats")["look_ups"] == 2


def test_a_filing_is_withdrawn_once(service: Service) -> None:
    filed = file(service, filing())[1]
    assert service.request("DELETE", f"/filings/{filed['id']}")[0] == 200
    status, answer = service.request("DELETE", f"/filings/{filed['id']}")
    assert (status, answer["error"]["message"]) == (404, f"there is no filing {filed['id']}")
    assert service.get("/filings")["filings"] == []
    assert service.get("/stats")["withdrawn"] == 1


def test_a_dropped_answer_is_of_a_filing_that_was_made(service: Service) -> None:
    service.request("POST", "/faults", {"drop_responses": 1})
    with pytest.raises((OSError, http.client.HTTPException)):
        file(service, filing())
    (made,) = service.get("/filings")["filings"]
    assert service.get("/faults")["dropped"] == [made]
    assert file(service, filing())[0] == 201
    stats = service.get("/stats")
    assert (stats["responses_dropped"], stats["duplicate_filings"]) == (1, 1)


def test_sixteen_at_once_are_all_kept(service: Service) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: file(service, filing(document=str(n))), range(64)))
    assert len({answer["id"] for _, answer in answers}) == 64
    assert service.get("/stats")["distinct_documents"] == 64


def test_what_was_answered_survives_sigkill(service: Service) -> None:
    answered = [file(service, filing(document=f"corpus:{n}"))[1]["id"] for n in range(20)]
    before = service.get("/stats")
    service.kill()
    service.start()
    assert service.get("/stats") == before
    assert [row["id"] for row in service.get("/filings")["filings"]] == answered


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/filings", b"{", 400, "not JSON"),
        ("POST", "/filings", b"[]", 400, "not a JSON object"),
        ("POST", "/filings", {"run": "r"}, 400, "document: Field required"),
        ("GET", "/filings/F-000009", None, 404, "no filing F-000009"),
        ("GET", "/filings/x", None, 400, "not a number"),
        ("POST", "/faults", {"drop_responses": -1}, 400, "a number of answers"),
        ("GET", "/nowhere", None, 404, "no GET /nowhere"),
    ],
)
def test_bad_requests_get_a_sentence(
    service: Service, *, method: str, path: str, body: object, status: int, reason: str
) -> None:
    answered, answer = service.request(method, path, body)
    assert answered == status
    assert reason in answer["error"]["message"]
    assert service.get("/stats")["filings"] == 0
