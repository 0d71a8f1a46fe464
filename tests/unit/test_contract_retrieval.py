"""Passages that resemble standard clauses are found, in English and in Chinese."""

import pytest

from examples.contract_review.clause_library import BY_KIND, CLAUSES, ClauseKind
from examples.contract_review.documents import open_document
from examples.contract_review.outlining import outline
from examples.contract_review.passages import (
    PASSAGE_LENGTH,
    collapse,
    comparable,
    sentences,
    split_passages,
)
from examples.contract_review.retrieval import BUDGET, match_clauses, retrieve, terms
from tests.support.contracts import CHINESE, ENGLISH, document


def best(text: str, kind: ClauseKind) -> str:
    """The best passage for a clause."""
    texts = split_passages(text)
    return next(texts[match.passage - 1] for match in match_clauses(texts) if match.clause is kind)


def test_every_kind_but_other_has_an_entry() -> None:
    assert set(ClauseKind) - set(BY_KIND) == {ClauseKind.OTHER}
    assert len(BY_KIND) == len(CLAUSES)


@pytest.mark.parametrize(
    ("kind", "phrase"),
    [
        (ClauseKind.LIABILITY_CAP, "consequential damages"),
        (ClauseKind.FEES, "pay each invoice"),
        (ClauseKind.TERMINATION, "terminate this agreement"),
        (ClauseKind.GOVERNING_LAW, "laws of Norway"),
        (ClauseKind.CONFIDENTIALITY, "confidential information"),
    ],
)
def test_english_clauses_are_found(kind: ClauseKind, phrase: str) -> None:
    assert phrase in best(ENGLISH, kind)


@pytest.mark.parametrize(
    ("kind", "phrase"),
    [
        (ClauseKind.LIABILITY_CAP, "间接损失"),
        (ClauseKind.FEES, "支付全部服务费用"),
        (ClauseKind.CONFIDENTIALITY, "商业秘密"),
        (ClauseKind.DISPUTES, "仲裁委员会"),
        (ClauseKind.UNILATERAL_CHANGE, "有权随时修改"),
    ],
)
def test_chinese_clauses_are_found(kind: ClauseKind, phrase: str) -> None:
    assert phrase in best(CHINESE, kind)


@pytest.mark.parametrize(
    ("kind", "phrase"),
    [
        (ClauseKind.LIABILITY_CAP, "Limitation of Liability"),
        (ClauseKind.USE_RESTRICTIONS, "Reverse Engineering"),
        (ClauseKind.AUDIT, "Audit Rights"),
        (ClauseKind.GOVERNING_LAW, "CHOICE OF LAW"),
        (ClauseKind.INDEMNITY, "Infringement Claims"),
    ],
)
def test_a_real_agreement_of_70_clauses_is_ranked_sensibly(kind: ClauseKind, phrase: str) -> None:
    assert phrase in best(open_document("corpus:altova-eula").text, kind)


def test_a_clause_without_a_cue_is_not_found() -> None:
    kinds = {match.clause for match in match_clauses(split_passages(ENGLISH))}
    assert ClauseKind.EXCLUSIVITY not in kinds
    assert ClauseKind.EXPORT not in kinds


def test_a_short_document_is_passed_on_whole() -> None:
    material = retrieve(document(ENGLISH))
    assert material.coverage == 1.0
    assert material.source.notes == ()
    assert [passage.number for passage in material.passages] == list(
        range(1, len(material.passages) + 1)
    )


def test_a_long_document_keeps_what_matters_and_says_what_it_left_out() -> None:
    filler = "\n\n".join(
        f"Paragraph {n} says little. " + "Words go on and on. " * 30 for n in range(120)
    )
    material = retrieve(document(f"{filler}\n\n{ENGLISH}"))
    texts = [passage.text for passage in material.passages]
    assert sum(map(len, texts)) <= BUDGET
    assert any("consequential damages" in text for text in texts)
    assert texts[0].startswith("Paragraph 0")
    assert material.coverage < 0.5
    assert "The analysis saw" in material.source.notes[-1]
    assert {match.passage for match in material.matches} <= {p.number for p in material.passages}


def test_chinese_is_scored_by_pairs_and_english_without_plurals() -> None:
    assert terms("保密义务") == ["保密", "密义", "义务"]
    assert terms("the Fees and invoices") == ["fee", "invoice"]


def test_passages_join_headings_and_stay_bounded() -> None:
    passages = split_passages(
        "1. FEES\n\nPay in\ntime.\n\n" + "A long sentence goes on here. " * 100
    )
    assert passages[0] == "1. FEES Pay in time."
    assert all(len(passage) <= PASSAGE_LENGTH for passage in passages)
    assert all(len(passage) <= PASSAGE_LENGTH for passage in split_passages("x" * 5_000))
    assert split_passages("ONLY A HEADING") == ["ONLY A HEADING"]
    assert split_passages("  \n\n ") == []


def test_sentences_keep_their_numbers() -> None:
    assert sentences("7. You shall pay. 8. We may leave.") == [
        "7. You shall pay.",
        "8. We may leave.",
    ]
    assert sentences("甲方应付款。乙方应交货！") == ["甲方应付款。", "乙方应交货！"]


def test_a_quotation_is_recognised_whatever_its_spaces_and_marks() -> None:
    assert comparable("The  “Customer”\nshall") == comparable('the "customer" SHALL')
    assert collapse("保密\n义务 and\nmore") == "保密义务 and more"


def test_outline_names_language_headings_and_terms() -> None:
    english, chinese = outline(document(ENGLISH)), outline(document(CHINESE))
    assert english.language == "en"
    assert "2. LIMITATION OF LIABILITY" in english.headings
    assert english.defined_terms == ("Provider", "Customer")
    assert chinese.language == "zh"
    assert "第二条 责任限制" in chinese.headings
    assert outline(document("Le licencié s'engage à respecter ces clauses.")).language == "other"
