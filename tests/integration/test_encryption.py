"""Payloads in the journal and artifacts beside it are encrypted when there is a key, and only then."""

from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import sql

from models.artifacts import payloads
from models.artifacts.errors import EncryptionProblem
from models.artifacts.store import current
from models.digests import digest_text
from models.errors import UndecodableValue
from models.journal import calls, effects, lookups, undoing
from models.journal.effect_values import Recorded
from models.journal.values import Claimed
from models.settings import settings
from models.states import BlockReason
from models.values import encode
from ops import client
from recovery.verify import verify
from tasks import group, inputs, stored
from tasks.outcomes import Blocked
from tasks.recording import judged
from tests.support.calling import asked, at_position
from tests.support.intents import KEY, SENDER, asking, settlement
from tests.support.journal import Journal, Worker, at, row_of, submit
from tests.support.toys import TOY, work

CANARY = "CANARY-4711"
LONG = 300_000
FIRST, SECOND = "11" * 32, "22" * 32

SetKeys = Callable[[str], None]


@pytest.fixture
def keys(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetKeys:
    monkeypatch.setenv("ONWARD_ARTIFACTS", str(tmp_path / "artifacts"))

    def set_keys(keys: str) -> None:
        monkeypatch.setenv("ONWARD_ENCRYPTION_KEY", keys)
        settings.cache_clear()

    set_keys(FIRST)
    return set_keys


def _everything(journal: Journal) -> str:
    """Every row of every table, as text."""
    tables = journal.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    found = []
    for table in tables:
        statement = sql.SQL("SELECT t::text AS line FROM {} t").format(
            sql.Identifier(table["relname"])
        )
        found += [row["line"] for row in journal.look.execute(statement).fetchall()]
    assert len(found) > 5
    return "\n".join(found)


def _files() -> bytes:
    root = Path(settings().artifacts)
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def _text(name: str, *, long: bool = False) -> str:
    return encode(f"{CANARY} {name}" * (LONG // 10 if long else 1))


def _submitted() -> tuple[str, Worker]:
    canvas = work.s(f"{CANARY} bound").set(key="a") | group(at("b"), at("c")) | at("join")
    return submit(canvas, given=_text("input")).run_id, Worker()


def _walked(*, long: bool = False) -> str:
    run_id, worker = _submitted()
    claimed = worker.take(run_id, "a")
    assert CANARY in inputs.given(claimed).arguments
    effects.intend(asking(request=_text("request")), claimed, SENDER)
    effects.settle(KEY, claimed, result=_text("result"))
    calls.record(
        claimed, asked(request=_text("asked", long=long), answer=_text("answer", long=long)),
        worker="w", reservation=None, charge=None,
    )  # fmt: skip
    worker.complete(claimed, _text("a"))
    for branch, key in (("0/1.0", "b"), ("0/1.1", "c")):
        claimed = worker.take(run_id, key, branch)
        assert inputs.given(claimed).piped == _text("a")
        worker.complete(claimed, _text(key))
    claimed = worker.take(run_id, "join")
    assert inputs.given(claimed).piped == f"[{_text('b')},{_text('c')}]"
    worker.complete(claimed, _text("j"))
    return run_id


@pytest.mark.parametrize("long", [False, True], ids=["small", "moved out"])
def test_no_payload_is_written_in_clear(journal: Journal, keys: SetKeys, long: bool) -> None:
    run_id = _walked(long=long)
    assert CANARY not in _everything(journal)
    assert CANARY.encode() not in _files()
    assert verify(run_id) == []
    assert client.recorded(run_id).output == _text("j")


def test_without_a_key_everything_is_in_clear(journal: Journal, keys: SetKeys) -> None:
    """So that the test above finds what it looks for."""
    keys("")
    run_id = _walked()
    assert _everything(journal).count(CANARY) >= 9
    assert verify(run_id) == []


def test_digests_are_of_the_true_texts(journal: Journal, keys: SetKeys) -> None:
    def digests() -> list[object]:
        run_id = submit(row_of("a"), given=_text("input")).run_id
        Worker().do(run_id, "a")
        (step,) = journal.rows("SELECT * FROM step WHERE run_id = %s", run_id)
        return [step["input_digest"], step["output_digest"], journal.run(run_id)["input_digest"]]

    encrypted = digests()
    keys("")
    assert digests() == encrypted
    assert encrypted[2] == digest_text(_text("input"))


def test_what_an_effect_was_asked_and_answered_is_read_back(
    journal: Journal, keys: SetKeys
) -> None:
    worker = Worker()
    claimed = worker.take(submit(row_of("a")).run_id, "a")
    intent = asking(request=_text("request"))
    effects.intend(intent, claimed, SENDER)
    assert effects.doubt(KEY, claimed, error="no answer", call_over=True)
    journal.advance(3600)
    effect = lookups.begin(KEY, looker="looker-1")
    assert effect is not None
    assert effect.request == _text("request")
    assert lookups.found(effect, result=_text("found"), source="lookup", said="there it is")
    assert effects.recall(KEY, intent.request_digest) == Recorded(_text("found"), claimed.token)
    done = undoing.read(KEY)
    assert (done.request, done.result) == (_text("request"), _text("found"))
    assert settlement(journal)["result_digest"] == digest_text(_text("found"))
    assert CANARY not in _everything(journal)


def test_a_rotated_key_reads_what_was_written_before(journal: Journal, keys: SetKeys) -> None:
    run_id = _walked(long=True)
    keys(f"{SECOND},{FIRST}")
    assert verify(run_id) == []
    assert client.recorded(run_id).output == _text("j")
    after = submit(row_of("a"), given=_text("input")).run_id
    Worker().do(after, "a")
    (old,) = journal.rows("SELECT output FROM step WHERE run_id = %s AND step_key = 'a'", run_id)
    (new,) = journal.rows("SELECT output FROM step WHERE run_id = %s", after)
    assert _key_of(old["output"]) != _key_of(new["output"])
    keys(SECOND)
    assert {finding.word for finding in verify(run_id)} == {"payload_unread"}
    assert verify(after) == []


def test_without_its_key_a_step_waits_for_a_person(journal: Journal, keys: SetKeys) -> None:
    run_id, worker = _submitted()
    claimed = worker.take(run_id, "a")
    keys(SECOND)
    with pytest.raises(EncryptionProblem) as caught:
        stored.given(claimed)
    outcome = judged(TOY.bound(work), claimed, caught.value)
    assert isinstance(outcome, Blocked)
    assert outcome.reason == BlockReason.ENVIRONMENT_CHANGED
    assert "ONWARD_ENCRYPTION_KEY" in outcome.error
    keys(f"{SECOND},{FIRST}")
    assert CANARY in stored.given(claimed).arguments


def test_an_answer_of_a_model_is_read_back(journal: Journal, keys: SetKeys) -> None:
    claimed: Claimed = Worker().take(submit(row_of("a")).run_id, "a")
    for position, long in enumerate((False, True)):
        place = at_position(position)
        call = asked(place, request=_text("asked", long=long), answer=_text("answer", long=long))
        calls.record(claimed, call, worker="w", reservation=None, charge=None)
        assert calls.answer(claimed, place) == call.answer
        assert calls.request(claimed, place) == call.request
    assert CANARY not in _everything(journal)


def test_sealed_text_that_was_changed_is_refused(keys: SetKeys) -> None:
    sealed = payloads.seal("a text")
    middle = sealed.rindex('"data":"') + 40
    changed = sealed[:middle] + ("A" if sealed[middle] != "A" else "B") + sealed[middle + 1 :]
    with pytest.raises(UndecodableValue, match="changed after it was encrypted"):
        payloads.load(changed)
    assert payloads.load(sealed) == "a text"
    assert payloads.seal("a text") != sealed
    assert list(current().files()) == []


def _key_of(recorded: str) -> str:
    return recorded.split('"key":"')[1][:16]
