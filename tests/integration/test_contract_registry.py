"""The registry as a real process: one filing for each key, durable, and an honest count."""

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


def file(service: Service, body: dict[str, Any], key: str | None = None) -> tuple[int, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    return service.request("POST", "/filings", body, headers=headers)


def test_the_same_key_again_is_the_first_filing_whatever_the_wording(service: Service) -> None:
    created, first = file(service, filing(wording="fine"), "key-1")
    repeated, second = file(service, filing(wording="good"), "key-1")
    assert (created, repeated) == (201, 200)
    assert first == second
    assert service.get(f"/filings/{first['id']}")["conclusion"] == {"summary": "fine"}
    stats = service.get("/stats")
    assert stats == {
        "filings": 1,
        "distinct_documents": 1,
        "duplicate_filings": 0,
        "requests": 2,
        "duplicates_refused": 1,
        "conflicts": 0,
    }


def test_a_key_is_bound_to_its_document(service: Service) -> None:
    file(service, filing(document="corpus:a"), "key-1")
    status, answer = file(service, filing(document="corpus:b"), "key-1")
    assert status == 409
    assert "bound to corpus:a" in answer["error"]["message"]
    assert service.get("/stats")["conflicts"] == 1


def test_fresh_keys_and_missing_keys_make_duplicates_that_are_counted(service: Service) -> None:
    for key in ("key-1", "key-2", None, None):
        assert file(service, filing(), key)[0] == 201
    stats = service.get("/stats")
    assert (stats["filings"], stats["duplicate_filings"], stats["distinct_documents"]) == (4, 3, 1)


def test_two_runs_over_one_document_are_no_duplicates(service: Service) -> None:
    file(service, filing(run="run-1"), "key-1")
    file(service, filing(run="run-2"), "key-2")
    assert service.get("/stats")["duplicate_filings"] == 0
    assert [row["run"] for row in service.get("/filings")["filings"]] == ["run-1", "run-2"]
    assert len(service.get("/filings?run=run-2")["filings"]) == 1
    assert len(service.get("/filings?after=1")["filings"]) == 1


def test_sixteen_at_once_with_one_key_make_one_filing(service: Service) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: file(service, filing(wording=str(n)), "key"), range(64)))
    assert len({answer["id"] for _, answer in answers}) == 1
    assert sorted(status for status, _ in answers) == [200] * 63 + [201]
    assert service.get("/stats")["duplicates_refused"] == 63


def test_what_was_answered_survives_sigkill(service: Service) -> None:
    answered = [
        file(service, filing(document=f"corpus:{n}"), f"key-{n}")[1]["id"] for n in range(20)
    ]
    file(service, filing(document="corpus:0"), "key-0")
    before = service.get("/stats")
    service.kill()
    service.start()
    assert service.get("/stats") == before
    assert [row["id"] for row in service.get("/filings")["filings"]] == answered
    assert file(service, filing(document="corpus:3"), "key-3") == (200, service_row(service, 3))


def test_ignoring_keys_makes_duplicates_real(tmp_path: Path) -> None:
    service = registry(tmp_path, "--ignore-keys").start()
    try:
        for _ in range(3):
            assert file(service, filing(), "key-1")[0] == 201
        stats = service.get("/stats")
        assert (stats["duplicate_filings"], stats["duplicates_refused"]) == (2, 0)
    finally:
        assert service.stop() == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/filings", b"{", 400, "not JSON"),
        ("POST", "/filings", b"[]", 400, "not a JSON object"),
        ("POST", "/filings", {"run": "r"}, 400, "document: Field required"),
        ("GET", "/filings/F-000009", None, 404, "no filing F-000009"),
        ("GET", "/filings/x", None, 400, "not a number"),
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


def service_row(service: Service, number: int) -> Any:
    return service.get("/filings")["filings"][number]
