"""Whole reviews over the real services: the steps' work in order, and the naive Celery chain."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.contract_review import corpus, registry_client, work
from examples.contract_review.errors import RegistryRefused, RegistryUnavailable
from examples.contract_review.estimate import estimate
from examples.contract_review.llm import unrecorded
from examples.contract_review.model_server import MODEL
from examples.contract_review.registry_client import FileConclusion, Filing
from examples.contract_review.values import Conclusion
from models.settings import settings
from tasks import Absent, Found, NotSent, Refused, Undecided
from tests.support.contract_services import ROOT, Service, asking, model_server, registry
from tests.support.contracts import CHINESE
from tests.support.waiting import wait_until

TOOL = FileConclusion()
SUBMIT = """
import sys
from examples.contract_review import naive
for number, uri in enumerate(sys.argv[1:]):
    naive.submit(uri, run=f"naive-{number}")
"""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Service, Service]]:
    """Model server and registry, and the environment that names them."""
    with asking(model_server(tmp_path)) as model:
        filings = registry(tmp_path).start()
        monkeypatch.setenv("ONWARD_LLM_BASE_URL", f"{model.url}/v1")
        monkeypatch.setenv("ONWARD_LLM_MODEL", MODEL)
        monkeypatch.setenv("ONWARD_LLM_LABELS", "1")
        monkeypatch.setenv("ONWARD_REGISTRY_URL", filings.url)
        settings.cache_clear()
        yield model, filings
        filings.kill()
    settings.cache_clear()


def review(uri: str, run: str) -> Conclusion:
    document = work.open_document(uri)
    material, skeleton = work.retrieve(document), work.outline(document)
    found = work.find_obligations(material, skeleton, ask=unrecorded(run=run, step="obligations"))
    weighed = work.find_risks(found, ask=unrecorded(run=run, step="risks"))
    return work.conclude(work.summarise(weighed, ask=unrecorded(run=run, step="summary")))


def test_real_agreements_are_reviewed_and_filed_once(services: tuple[Service, Service]) -> None:
    model, filings = services
    uris = corpus.default_uris()[::20]
    for number, uri in enumerate(uris):
        conclusion = review(uri, f"run-{number}")
        request = Filing(run=f"run-{number}", conclusion=conclusion)
        assert TOOL.lookup(request, key="k") == Absent()
        filed = TOOL.execute(request, key="k")
        assert TOOL.lookup(request, key="k") == Found(filed)
    stats, calls = filings.get("/stats"), model.get("/stats")
    assert (stats["filings"], stats["distinct_documents"]) == (len(uris), len(uris))
    assert calls["calls"] == estimate(uris).llm_calls
    assert 0.6 < calls["tokens_in"] / estimate(uris).tokens_in < 1.5


def test_a_chinese_contract_in_a_file(services: tuple[Service, Service], tmp_path: Path) -> None:
    _, filings = services
    file = tmp_path / "合同.txt"
    file.write_bytes(CHINESE.encode("gb18030"))
    conclusion = review(file.as_uri(), "run-1")
    filing = registry_client.file_conclusion(conclusion, run="run-1")
    filed = filings.get(f"/filings/{filing}")["conclusion"]
    assert set(filed["parties"]) == {"甲方", "乙方"}


def test_what_the_registry_says_means_done_not_done_or_nobody_knows(
    services: tuple[Service, Service],
) -> None:
    _, filings = services
    conclusion = review("corpus:altova-eula", "run-1")
    request = Filing(run="run-1", conclusion=conclusion)
    with pytest.raises(RegistryRefused, match="set ONWARD_REGISTRY_URL") as unset:
        registry_client.file_conclusion(conclusion, run="run-1", environ={})
    assert isinstance(unset.value, Refused)
    with pytest.raises(RegistryRefused, match="at least 1 character") as empty:
        registry_client.file_conclusion(conclusion, run="")
    assert isinstance(empty.value, Refused)
    filings.request("POST", "/faults", {"drop_responses": 1})
    with pytest.raises(RegistryUnavailable, match="no answer to POST"):
        TOOL.execute(request, key="k")
    assert isinstance(TOOL.lookup(request, key="k"), Found), "the answer was lost, not the filing"
    filings.kill()
    with pytest.raises(NotSent, match="accepts no connections"):
        TOOL.execute(request, key="k")


def test_a_second_filing_is_for_a_person_and_one_is_withdrawn(
    services: tuple[Service, Service],
) -> None:
    request = Filing(run="run-1", conclusion=review("corpus:altova-eula", "run-1"))
    first, second = (TOOL.execute(request, key="k") for _ in range(2))
    found = TOOL.lookup(request, key="k")
    assert isinstance(found, Undecided)
    assert f"filed 2 times: {first}, {second}" in found.reason
    for _ in range(2):
        TOOL.compensate(request, second, key="k")
    assert TOOL.lookup(request, key="k") == Found(first)


def test_the_naive_chain_does_the_same_work(
    services: tuple[Service, Service],
    broker_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, filings = services
    monkeypatch.setenv("ONWARD_NAIVE_BROKER_URL", broker_url)
    uris = corpus.default_uris()[:3]
    command = [sys.executable, "-m", "celery", "-A", "examples.contract_review.naive", "worker"]
    command += ["--concurrency", "2", "--loglevel", "WARNING"]
    with (tmp_path / "naive.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        subprocess.run([sys.executable, "-c", SUBMIT, *uris], cwd=ROOT, check=True)
        wait_until(
            lambda: filings.get("/stats")["filings"] >= len(uris),
            timeout=60,
            what="three naive filings",
            details=(tmp_path / "naive.log").read_text,
        )
    finally:
        worker.terminate()
        worker.wait(timeout=30)
    assert filings.get("/stats")["distinct_documents"] == len(uris)
    assert model.get("/stats")["calls"] == 3 * len(uris)
