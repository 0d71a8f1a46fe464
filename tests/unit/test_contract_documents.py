"""Text comes out of every supported type, and what gives none is refused by name with a reason."""

import io
import pickle
import zipfile
from pathlib import Path

import pytest
from docx import Document as new_docx
from pypdf import PdfReader, PdfWriter

from examples.contract_review import documents
from examples.contract_review.decoding import decode
from examples.contract_review.documents import RECORDED_LIMIT, cut_to, list_documents, recorded_size
from examples.contract_review.errors import UnreadableDocument
from tests.support.contracts import CHINESE, ENGLISH

SENTENCE = "The Customer shall pay each invoice within thirty days after it was received."


def pdf(text: str) -> bytes:
    """A one-page PDF with one line of text, written by hand."""
    stream = f"BT /F1 12 Tf 40 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 900 800] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\n" % table
    return bytes(out) + b"startxref\n%d\n%%%%EOF\n" % (out.rindex(b"xref\n0 6"))


def encrypted_pdf(text: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(text))))
    writer.encrypt("secret", algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def docx(*paragraphs: str, row: tuple[str, str] = ("Price", "100")) -> bytes:
    made = new_docx()
    made.add_paragraph(paragraphs[0])
    table = made.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = row
    for paragraph in paragraphs[1:]:
        made.add_paragraph(paragraph)
    buffer = io.BytesIO()
    made.save(buffer)
    return buffer.getvalue()


def read(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return documents.open_document(path.as_uri()).text


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(UnreadableDocument) as refused:
        read(path, data)
    assert path.name in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_text_in_any_unicode_encoding(tmp_path: Path, text: str, encoding: str) -> None:
    assert read(tmp_path / "a.txt", text.encode(encoding)) == text.strip()


def test_chinese_in_gb18030_and_accents_in_windows_1252(tmp_path: Path) -> None:
    accented = "Le licencié s'engage à respecter les clauses énumérées ci-après – à ses frais."
    assert read(tmp_path / "a.txt", CHINESE.encode("gb18030")) == CHINESE.strip()
    assert read(tmp_path / "b.md", accented.encode("cp1252")) == accented


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(encoding: str) -> None:
    assert decode(ENGLISH.encode(encoding)) == ENGLISH


def test_html_keeps_paragraphs_and_drops_what_is_not_read(tmp_path: Path) -> None:
    page = (
        "<html><head><title>t</title><style>p{}</style></head><body><script>var x</script>"
        f"<h1>Terms</h1><p>{SENTENCE} It <b>must</b> do so.</p>"
        "<ul><li>one</li><li>two</li></ul></body>"
    )
    text = read(tmp_path / "a.html", page.encode())
    assert text == f"Terms\n\n{SENTENCE} It must do so.\n\none\n\ntwo"


def test_html_follows_its_declared_encoding_unless_it_is_wrong(tmp_path: Path) -> None:
    body = f"<p>{CHINESE}</p>"
    declared = f'<html><head><meta charset="gb2312"></head><body>{body}'.encode("gb18030")
    wrong = f'<html><head><meta charset="ascii"></head><body>{body}'.encode()
    assert "商业秘密" in read(tmp_path / "a.html", declared)
    assert "商业秘密" in read(tmp_path / "b.htm", wrong)


def test_pdf(tmp_path: Path) -> None:
    assert read(tmp_path / "a.PDF", pdf(SENTENCE)) == SENTENCE


def test_docx_keeps_tables_in_their_place(tmp_path: Path) -> None:
    text = read(tmp_path / "a.docx", docx(SENTENCE, CHINESE, row=("Price", "100 EUR")))
    assert text.startswith(f"{SENTENCE}\n\nPrice\t100 EUR\n\n软件服务合同")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.txt", b"", "hardly any text"),
        ("blank.pdf", pdf(""), "OCR"),
        ("locked.pdf", encrypted_pdf(SENTENCE), "encrypted"),
        ("torn.pdf", pdf(SENTENCE)[:90], "not a sound PDF"),
        ("not.docx", b"PK\x03\x04 nothing", "not a sound .docx"),
        ("locked.docx", b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted"),
        ("image.txt", b"\x89PNG\r\n\x1a\n\x00\xff\x00\x01\xfe" * 40, "not text"),
        ("sheet.xlsx", b"PK", ".xlsx are not supported"),
    ],
)
def test_an_unreadable_file_is_refused_with_its_reason(
    tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    assert reason in refusal(tmp_path / name, data)


def test_a_docx_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.contract_review.extract.UNPACKED_LIMIT", 1_000)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 2_000_000)
    assert "unpacks to 1 MiB" in refusal(tmp_path / "bomb.docx", buffer.getvalue())


def test_a_missing_file_and_a_foreign_address_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDocument, match="no such file"):
        documents.open_document((tmp_path / "gone.txt").as_uri())
    with pytest.raises(UnreadableDocument, match="neither corpus"):
        documents.open_document("https://example.org/contract.txt")
    with pytest.raises(UnreadableDocument, match="no such text"):
        documents.open_document("corpus:../../../README")


def test_the_refusal_survives_the_way_between_processes() -> None:
    error = UnreadableDocument("a.pdf", "it is encrypted", "Save a copy.")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert str(copy) == str(error)


def test_a_folder_is_listed_in_order_with_what_was_left_out(tmp_path: Path) -> None:
    for name in ("b.txt", "a.md", "sub/c.html", "sub/picture.png", ".hidden.txt", "~$lock.docx"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(ENGLISH)
    listing = list_documents(tmp_path)
    assert [uri.rpartition("/")[2] for uri in listing.uris] == ["a.md", "b.txt", "c.html"]
    assert [skipped.path.name for skipped in listing.skipped] == ["picture.png"]
    assert ".png is not supported" in listing.skipped[0].reason


def test_a_single_file_is_listed_and_a_name_with_spaces_and_chinese_is_read(tmp_path: Path) -> None:
    file = tmp_path / "合同 1 #2.txt"
    file.write_text(CHINESE)
    (uri,) = list_documents(file).uris
    assert documents.open_document(uri).source.title == "合同 1 #2.txt"
    with pytest.raises(UnreadableDocument, match="no such file or folder"):
        list_documents(tmp_path / "gone")


def test_a_document_too_long_for_the_journal_is_cut_with_a_note(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("\n\n".join([CHINESE] * 300))
    document = documents.open_document(file.as_uri())
    assert not document.source.complete
    assert "Only the first" in document.source.notes[0]
    assert recorded_size(document.text) <= RECORDED_LIMIT
    assert len(document.model_dump_json()) < 256 * 1024


def test_cutting_keeps_both_limits_and_what_fits_is_not_touched() -> None:
    assert cut_to("abc", characters=3, recorded=5) == "abc"
    assert cut_to("甲乙丙", characters=3, recorded=14) == "甲乙"
    assert cut_to("aaaa\n\nbbb", characters=7, recorded=100) == "aaaa"
