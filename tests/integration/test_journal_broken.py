"""Connections that break in the middle of a statement: what became of it is read back, never guessed."""

from collections.abc import Iterator

import pytest

from models import database
from models.ids import new_nonce
from models.journal import expanding, failing, reads, steps
from models.journal.errors import CommitUnknown, JournalUnavailable, LeaseLost
from models.journal.values import Claimed, Completed
from models.settings import settings
from tasks import group, patience
from tests.support.journal import FAILURE, Journal, Worker, at, output, row_of, submit_run
from tests.support.proxy import Cut, Wire, wire_to


@pytest.fixture
def wire(journal: Journal, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The verbs reach the journal over this wire; the test's own look at it does not."""
    with wire_to(database_url) as (wire, url):
        monkeypatch.setenv("ONWARD_DATABASE_URL", url)
        settings.cache_clear()
        yield wire
        database.close()


def test_a_claim_that_went_through_unanswered_is_ours(journal: Journal, wire: Wire) -> None:
    run_id = submit_run(row_of("a"))
    wire.cut_next(Cut.ANSWER)
    claimed = Worker().take(run_id, "a")
    live = journal.live(run_id)
    assert (live["attempt"], live["token"], live["owner"]) == (1, 1, claimed.owner)
    assert wire.cuts == 1
    Worker().complete(claimed)


def test_a_claim_that_never_arrived_is_made_again(journal: Journal, wire: Wire) -> None:
    run_id = submit_run(row_of("a"))
    wire.cut_next(Cut.REQUEST)
    assert Worker().take(run_id, "a").token == 1
    assert wire.cuts == 1


def test_a_claim_that_another_won_meanwhile_is_not_ours(journal: Journal, wire: Wire) -> None:
    run_id = submit_run(row_of("a"))
    database.connection()
    journal.make(run_id, state="running", owner="start-2.x", lease_expires_at="9999-01-01Z")
    wire.cut_next(Cut.REQUEST)
    assert Worker().claim(run_id, "a") is None


def test_only_the_nonce_that_claimed_reads_the_claim_back(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker, nonce = Worker(), new_nonce()
    claimed = steps.claim(
        run_id, "0", "a", workflow="toy", versions=("1",), carrier=worker.carrier(), nonce=nonce
    )
    assert claimed is not None

    def back(run: str, branch: str, mark: str) -> Claimed | None:
        return steps.claimed_by(run, branch, carrier=worker.carrier(), nonce=mark)

    assert back(run_id, "0", nonce) == claimed
    assert back(run_id, "0/1.0", nonce) is None
    assert back("run-none", "0", nonce) is None
    assert back(run_id, "0", "another") is None


def test_a_next_step_claimed_in_an_unanswered_commit_is_read_back(
    journal: Journal, wire: Wire
) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker, nonce = Worker(), new_nonce()
    claimed = worker.take(run_id, "a")
    wire.cut_next(Cut.ANSWER)
    with pytest.raises(CommitUnknown):
        steps.complete_and_claim(
            claimed, output(claimed, '"x"'), carrier=worker.carrier(), nonce=nonce
        )
    assert steps.confirm(claimed)
    led = steps.led_to(claimed, carrier=worker.carrier(), nonce=nonce)
    assert led is not None
    following = led.claimed
    assert following is not None, "nobody else would run it, or keep its lease, before that ran out"
    assert (following.step_key, following.piped, following.token) == ("b", '"x"', 2)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize(
    "canvas",
    [row_of("a"), row_of("a", "b"), at("a") | group(at("b"), at("c")) | at("d")],
    ids=["finish", "advance", "fork"],
)
def test_a_completion_cut_off_is_written_once(
    journal: Journal, wire: Wire, canvas: object, cut: Cut
) -> None:
    run_id = submit_run(canvas)  # type: ignore[arg-type]
    worker = Worker()
    claimed = worker.take(run_id, "a")
    wire.cut_next(cut)
    tries = 0

    def write() -> Completed:
        nonlocal tries
        tries += 1
        return worker.complete(claimed, '"once"')

    patience.recorded(write, confirmed=lambda: led_to(claimed))
    assert (wire.cuts, tries) == (1, 1 if cut is Cut.ANSWER else 2)
    step = journal.step(run_id, "a")
    assert step is not None
    assert step["output"] == '"once"'


def led_to(claimed: Claimed) -> Completed | None:
    return steps.led_to(claimed, carrier=Worker().carrier(), nonce=new_nonce())


def test_only_ones_own_result_confirms(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    late = Worker().take(run_id, "a")
    assert not steps.confirm(late)
    journal.lose()
    journal.make(run_id, state="pending")
    quick = Worker("worker-2", "start-2").take(run_id, "a")
    Worker("worker-2").complete(quick)
    assert steps.confirm(quick)
    assert not steps.confirm(late)
    with pytest.raises(LeaseLost):
        Worker().complete(late)


def test_a_step_that_failed_does_not_confirm_a_result(journal: Journal) -> None:
    run_id = submit_run(group(at("m0"), at("m1"), tolerant=True) | at("join"))
    claimed = Worker().take(run_id, "m0", "0/1.0")
    Worker().fail(claimed)
    assert not steps.confirm(claimed)


def test_steps_added_in_a_cut_off_commit_are_added_once(journal: Journal, wire: Wire) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    wire.cut_next(Cut.REQUEST)
    with pytest.raises(JournalUnavailable):
        worker.then(claimed, at("x"))
    assert set(journal.states(run_id)) == {"a", "b"}
    patience.recorded(lambda: worker.then(claimed, at("x")), confirmed=lambda: led_to(claimed))
    assert set(journal.states(run_id)) == {"a", "b", "x"}


def test_a_failure_cut_off_is_recorded_at_the_next_try(journal: Journal, wire: Wire) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    wire.cut_next(Cut.REQUEST)
    with pytest.raises(JournalUnavailable):
        worker.fail(claimed)
    assert journal.states(run_id) == {"a": "running"}
    failing.fail(claimed, worker="worker-1", **FAILURE)
    assert journal.run(run_id)["state"] == "failed"


def test_a_database_that_does_not_answer_is_named(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_DATABASE_URL", "postgresql+psycopg://onward@127.0.0.1:1/none")
    settings.cache_clear()
    database.close()
    with pytest.raises(JournalUnavailable, match="does not answer") as refused:
        reads.pass_age("sweep")
    assert not isinstance(refused.value, CommitUnknown)


def test_a_backend_that_was_ended_is_replaced(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    journal.look.execute(
        "SELECT pg_terminate_backend(%s, 5000)", (database.connection().info.backend_pid,)
    )
    with pytest.raises(CommitUnknown):
        reads.why_not(run_id, "0", "a")
    assert reads.why_not(run_id, "0", "a") is reads.NotClaimed.VERSION


def test_nothing_of_an_expansion_is_seen_before_all_of_it(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    claimed = Worker().take(run_id, "a")
    before = journal.image()

    def compiler_breaks(*_: object) -> object:
        assert journal.image() == before
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        expanding.complete_with(
            claimed,
            output(claimed),
            worker="worker-1",
            compile_insertion=compiler_breaks,  # type: ignore[arg-type]
        )
    assert journal.image() == before
