"""What the journal keeps of artifacts: values that were moved out of it, uses, orphans, and who may remove what."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import database
from models.artifacts import payloads
from models.artifacts.errors import ArtifactChanged, ArtifactTooLarge
from models.artifacts.store import Store, current
from models.digests import digest_text
from models.journal import artifacts, history, steps
from models.journal.values import Claimed, Completed, Output
from models.settings import settings
from models.values import decode, encode
from ops import artifacts as keeping
from recovery.verify import verify
from tasks import group, inputs, stored
from tests.support.journal import Journal, Worker, at, row_of, submit, submit_run
from tests.support.waiting import wait_until

LONG = 300_000


@pytest.fixture
def store(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("ONWARD_ARTIFACTS", str(tmp_path / "artifacts"))
    settings.cache_clear()
    return current()


class Keeper(Worker):
    """Records results as the engine does."""

    def complete(self, claimed: Claimed, text: str = "null") -> Completed:
        return steps.complete(
            claimed, self.output(claimed, text), worker=self.name, successor=claimed.successor
        )

    def output(self, claimed: Claimed, text: str) -> Output:
        kept = stored.kept(text, claimed, step_name=claimed.step_name)
        return Output(text, *inputs.digests(claimed, text), kept)


def _long(letter: str) -> str:
    return encode(letter * LONG)


def _digests(store: Store) -> set[str]:
    return {kept.digest for kept in store.files() if kept.digest is not None}


def test_a_small_value_is_recorded_as_it_is(store: Store) -> None:
    for text in (
        '"small"',
        "{}",
        '{"$decimal":"1.1"}',
        encode("x" * (settings().output_limit - 2)),
    ):
        assert payloads.offload(text, run_id="r", step_key="s", name="output") is text
        assert payloads.load(text) is text
    assert _digests(store) == set()
    assert database.fetch("SELECT * FROM artifact", {}) == []


@pytest.mark.parametrize(
    "value",
    [
        "x" * LONG, "line\n" * LONG, "käse ☃ 𝄞 " * LONG, '"quoted"\\' * LONG, "\x00\x7f" * LONG,
        "\ud800" * LONG, "\ud83d\ude00" * LONG, ["a" * LONG, 1.5], {"$key": "a" * LONG}, b"\xff" * LONG,
    ],
    ids=range(10),
)  # fmt: skip
def test_a_long_value_comes_back_as_it_was(store: Store, value: object) -> None:
    text = encode(value)
    recorded = payloads.offload(text, run_id="r", step_key="s", name="output")
    assert len(recorded) < 200
    assert recorded.isascii()
    assert payloads.load(recorded) == text
    assert payloads.digest_of(recorded) == digest_text(text)
    assert decode(payloads.load(recorded)) == value


def test_a_string_is_kept_as_its_own_characters(store: Store) -> None:
    value = "käse\n" * LONG
    recorded = payloads.offload(encode(value), run_id="r", step_key="s", name="output")
    (reference,) = payloads.references([recorded])
    assert store.get(reference.digest) == value.encode()


def test_foreign_text_that_looks_like_a_reference_is_none(store: Store) -> None:
    """Answers of models are recorded as they came, and one may have read this."""
    kept = store.put(b"somebody else's")
    for text in (
        f'{{"$onward-artifact":{{"digest":"{kept.digest}","size":15}}}}', '{"$onward-sealed":{}}', '{"$onward-',
    ):  # fmt: skip
        recorded = payloads.offload(text, run_id="r", step_key="s", name="answer")
        assert recorded != text
        assert payloads.load(recorded) == text


@given(st.text(alphabet='"\\\n\x00a☃\ud83d\ude00𝄞', max_size=30))
def test_any_text_comes_back(text: str) -> None:
    content, is_string = payloads._content(encode(text))
    back = "".join(
        payloads._dumps(piece)[1:-1] if is_string else piece for piece in (content[:7], content[7:])
    )
    assert (f'"{back}"' if is_string else back) == encode(text)


def test_results_arguments_and_inputs_beside_the_journal_verify(
    store: Store, journal: Journal
) -> None:
    worker = Keeper()
    run_id = submit(
        at("a") | group(at("b"), at("c")) | at("join"), given=f'{{"text":{_long("i")}}}'
    ).run_id
    worker.complete(worker.take(run_id, "a"), _long("a"))
    for branch, key in (("0/1.0", "b"), ("0/1.1", "c")):
        claimed = worker.take(run_id, key, branch)
        assert inputs.given(claimed).piped == _long("a")
        worker.complete(claimed, _long(key))
    claimed = worker.take(run_id, "join")
    assert inputs.given(claimed).piped == f"[{_long('b')},{_long('c')}]"
    worker.complete(claimed, _long("j"))

    assert verify(run_id) == []
    rows = journal.rows(
        "SELECT input AS text FROM run UNION ALL SELECT output FROM step UNION ALL SELECT arguments FROM plan"
    )
    assert max(len(row["text"]) for row in rows) < 300
    assert payloads.load(history.outcome(run_id).output or "") == _long("j")
    assert len(_digests(store)) == 5
    assert keeping.collect(older_than=0).count == 0


def test_digests_do_not_depend_on_where_a_value_lies(
    store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digests() -> list[tuple[str, str]]:
        run_id, worker = submit_run(row_of("a", "b")), Keeper()
        for key in ("a", "b"):
            worker.complete(worker.take(run_id, key), _long(key))
        assert verify(run_id) == []
        rows = journal.rows("SELECT * FROM step WHERE run_id = %s ORDER BY step_key", run_id)
        return [(row["input_digest"], row["output_digest"]) for row in rows]

    outside = digests()
    monkeypatch.setenv("ONWARD_OUTPUT_LIMIT", str(10 * LONG))
    settings.cache_clear()
    assert digests() == outside


def test_in_place_the_next_step_reads_what_was_recorded(store: Store) -> None:
    run_id, worker = submit_run(row_of("a", "b")), Keeper()
    claimed = worker.take(run_id, "a")
    following = steps.complete_and_claim(
        claimed, worker.output(claimed, _long("a")), carrier=worker.carrier(), nonce="n"
    ).claimed
    assert following is not None
    assert following.piped is not None
    assert len(following.piped) < 300
    assert inputs.given(following).piped == _long("a")
    store.forget(payloads.references([following.piped])[0].digest)
    with pytest.raises(ArtifactChanged, match="found nothing"):
        stored.given(following)


def test_too_large_is_refused_and_nothing_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_ARTIFACT_LIMIT", str(LONG - 1))
    settings.cache_clear()
    with pytest.raises(ArtifactTooLarge):
        payloads.offload(_long("x"), run_id="r", step_key="s", name="output")
    assert list(store.files()) == []


def test_what_another_attempt_made_is_an_orphan_once_the_step_is_over(
    store: Store, journal: Journal
) -> None:
    run_id, worker = submit_run(row_of("a")), Keeper()
    claimed = worker.take(run_id, "a")
    worker.output(claimed, _long("x"))  # and its worker dies before the completion
    assert keeping.collect(older_than=0).count == 0  # the step may still record it
    worker.complete(claimed, _long("y"))
    (first,) = artifacts.orphans(older_than=0)
    assert keeping.collect(older_than=60).count == 0
    assert keeping.collect(older_than=0, dry_run=True).orphans == [first]
    assert len(_digests(store)) == 2
    found = keeping.collect(older_than=0)
    assert found.orphans == [first]
    assert found.bytes > 0
    assert not store.has(first)
    assert [use.digest for use in artifacts.uses(run_id)] == sorted(_digests(store))
    assert keeping.collect(older_than=0).count == 0
    assert verify(run_id) == []


def test_the_same_content_twice_is_one_artifact_with_two_uses(store: Store) -> None:
    run_id, worker = submit_run(row_of("a", "b")), Keeper()
    for key in ("a", "b"):
        worker.complete(worker.take(run_id, key), _long("x"))
    (known,) = artifacts.known()
    assert (known.uses, known.needed, known.size) == (2, True, LONG)
    assert [use.step_key for use in artifacts.uses(run_id)] == ["a", "b"]


def test_what_is_noted_while_it_is_collected_is_put_again(store: Store, journal: Journal) -> None:
    """The collector holds the digest's lock; the upload is whole, and its row waits for that lock."""
    text = _long("x")
    uploaded = payloads.upload(text)
    digest = uploaded.reference.digest
    recorded: list[str] = []

    def note() -> None:
        recorded.append(
            payloads.keep(text, uploaded, run_id="r", step_key="s", name="output", role="output")
        )
        database.close()

    writer = threading.Thread(target=note)
    with artifacts.forgetting(digest, older_than=0) as goes:
        assert goes
        writer.start()
        wait_until(
            lambda: journal.rows(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%advisory%%'"
            ),
            what="the writer waits for the collector",
        )
        store.forget(digest)
    writer.join(timeout=10)
    assert payloads.load(recorded[0]) == text


def test_what_was_noted_in_time_is_not_collected(store: Store) -> None:
    stored_ = store.put(b"content")
    artifacts.note(stored_, run_id="gone", step_key="s", name="n", role="output")
    assert artifacts.orphans(older_than=0) == [stored_.digest]
    with artifacts.forgetting(stored_.digest, older_than=60) as goes:
        assert not goes
    assert artifacts.noted([stored_.digest, "other"]) == {stored_.digest}


def test_changed_content_is_told_by_where_it_belongs(store: Store) -> None:
    run_id, worker = submit_run(row_of("a", "b")), Keeper()
    for key in ("a", "b"):
        worker.complete(worker.take(run_id, key), _long(key))
    (digest,) = (use.digest for use in artifacts.uses(run_id) if use.step_key == "a")
    store.forget(digest)
    (finding,) = verify(run_id)
    assert (finding.word, finding.where) == ("artifact_missing", "a")
    assert digest in finding.sentence
    assert [wrong.digest for wrong in keeping.verify(run_id=run_id).wrong] == [digest]
