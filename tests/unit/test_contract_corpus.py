"""The default documents: 137, the same every time, all real agreements of a bearable length."""

from examples.contract_review import corpus
from examples.contract_review.documents import open_document
from examples.contract_review.estimate import estimate


def test_137_documents_the_same_in_every_process() -> None:
    first = corpus.default_uris()
    corpus.default_uris.cache_clear()
    assert first == corpus.default_uris()
    assert len(first) == len(set(first)) == 137
    assert list(first) == sorted(first, key=lambda uri: f"{uri}.LICENSE")
    assert first[0] == "corpus:activestate-komodo-edit"
    assert first[-1] == "corpus:ziplist5-geocode-end-user-enterprise"


def test_all_are_read_whole_and_differ() -> None:
    read = [open_document(uri) for uri in corpus.default_uris()]
    assert len({document.source.digest for document in read}) == 137
    assert all(document.source.complete for document in read)
    assert all(len(document.text) >= corpus.LEAST_CHARACTERS for document in read)
    assert max(len(document.model_dump_json()) for document in read) < 256 * 1024


def test_the_front_matter_gives_the_title_and_is_not_part_of_the_text() -> None:
    document = open_document("corpus:altova-eula")
    assert document.source.title == "Altova EULA"
    assert document.text.startswith("THIS IS A LEGAL DOCUMENT")


def test_the_estimate_counts_three_calls_a_document_and_nothing_for_what_is_missing() -> None:
    expected = estimate(corpus.default_uris())
    assert expected.llm_calls == 411
    assert 1_000_000 < expected.tokens_in < 2_000_000
    assert "137 documents: about 411 LLM calls" in str(expected)
    assert estimate(["file:///no/such/file.txt"]).llm_calls == 3
