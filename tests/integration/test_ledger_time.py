"""Calls that hang, come late, are cut short or have to wait: what is written, and what never is sent."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from billiard.exceptions import SoftTimeLimitExceeded

from models.journal import effects
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from models.settings import settings
from tasks import NotSent, Unanswered
from tasks.effects import Ledger
from tasks.errors import AttemptLost, EffectPostponed, EffectUnknown
from tasks.tool_requests import Asked, ask
from tests.support.desk import (
    DESK,
    Hasty,
    Idempotent,
    Made,
    Queryable,
    Read,
    Wanted,
    a_ledger,
    raises,
)
from tests.support.intents import again, at_work, stories
from tests.support.journal import Journal
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def desk() -> Iterator[None]:
    DESK.reset()
    yield
    DESK.reset()


@pytest.fixture
def claimed(journal: Journal) -> Claimed:
    return at_work()


def call(ledger: Ledger, tool: Queryable | Read, servers: int = 1) -> object:
    return ledger.call(tool, Wanted(servers), name=None)


def held(answer: Callable[[], object] = lambda: Made("res-late")) -> tuple[
    Callable[[], object], threading.Event
]:  # fmt: skip
    """An answer that waits until it is let go."""
    gate = threading.Event()

    def answered() -> object:
        assert gate.wait(20)
        return answer()

    return answered, gate


def test_a_tool_that_hangs_is_in_doubt_and_its_late_answer_evidence(
    journal: Journal, claimed: Claimed
) -> None:
    answer, gate = held()
    DESK.then(answer)
    ledger = a_ledger(claimed)
    with pytest.raises(EffectUnknown, match=r"no answer within 0\.2 s"):
        call(ledger, Hasty())
    (row,) = journal.rows("SELECT * FROM effect")
    assert (row["state"], row["call_over"]) == ("unknown", False)
    assert isinstance(ledger.close(), EffectUnknown)

    gate.set()
    (kept,) = wait_until(
        lambda: journal.rows("SELECT * FROM effect_evidence"), what="the late answer is filed"
    )
    assert kept["result"] == '{"resource_id":"res-late","servers":1}'
    assert [kind for kind, _ in stories(journal, claimed.run_id)] == [
        "effect_unknown", "effect_late_answer",
    ]  # fmt: skip
    _wait_for_one_connection(journal)


def test_a_call_that_ends_late_with_an_error_is_over(journal: Journal, claimed: Claimed) -> None:
    answer, gate = held(raises(ConnectionError("cut")))
    DESK.then(answer)
    with pytest.raises(EffectUnknown):
        call(a_ledger(claimed), Hasty())
    gate.set()
    wait_until(
        lambda: journal.one("SELECT call_over FROM effect"), what="the call is known to be over"
    )
    assert not journal.rows("SELECT * FROM effect_evidence")


def test_a_pure_call_that_hangs_is_an_error_of_the_body(claimed: Claimed) -> None:
    answer, gate = held()
    DESK.then(answer)
    ledger = a_ledger(claimed)
    with pytest.raises(Unanswered, match=r"no answer within 0\.5 s"):
        call(ledger, Read())
    gate.set()
    assert ledger.close() is None


def test_a_soft_time_limit_while_the_tool_works_leaves_a_doubt(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, gate = held()
    DESK.then(answer)
    _interrupt_waiting(monkeypatch, SoftTimeLimitExceeded())
    ledger = a_ledger(claimed)
    with pytest.raises(EffectUnknown, match="SoftTimeLimitExceeded"):
        call(ledger, Queryable())
    gate.set()
    wait_until(
        lambda: journal.rows("SELECT * FROM effect_evidence"), what="the late answer is filed"
    )
    assert journal.one("SELECT call_over FROM effect") is False
    assert isinstance(ledger.close(), EffectUnknown)


def test_a_shutdown_while_the_tool_works_leaves_a_doubt_and_goes_on(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, gate = held()
    DESK.then(answer)
    _interrupt_waiting(monkeypatch, SystemExit(0))
    ledger = a_ledger(claimed)
    with pytest.raises(SystemExit):
        call(ledger, Queryable())
    assert journal.one("SELECT state FROM effect") == "unknown"
    assert isinstance(ledger.close(), EffectUnknown)
    gate.set()


def test_a_time_limit_that_strikes_while_the_answer_is_written_waits_for_it(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, strikes = effects.settle, [SoftTimeLimitExceeded()]

    def struck(key: str, holder: Claimed, *, result: str) -> None:
        if strikes:
            raise strikes.pop()
        settle(key, holder, result=result)

    monkeypatch.setattr(effects, "settle", struck)
    ledger = a_ledger(claimed)
    with pytest.raises(SoftTimeLimitExceeded):
        call(ledger, Queryable())
    assert journal.one("SELECT result FROM effect_settlement")
    assert ledger.close() is None
    assert len(DESK.calls) == 1


def test_what_is_overtaken_by_its_send_window_is_not_sent_but_asked_for_again(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend, pauses = effects.intend, [0.3]

    def slowly(*args: object) -> object:
        standing = intend(*args)  # type: ignore[arg-type]
        if pauses:
            time.sleep(pauses.pop())  # the process was stopped
        return standing

    monkeypatch.setenv("ONWARD_SEND_WINDOW", "0.2")
    settings.cache_clear()
    monkeypatch.setattr(effects, "intend", slowly)
    assert call(a_ledger(claimed), Queryable()) == Made("res-1")
    assert stories(journal, claimed.run_id)[0][0] == "effect_refused"
    assert journal.one("SELECT sends FROM effect_settlement") == 2


def test_a_machine_that_never_makes_its_window_gives_the_step_back(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_SEND_WINDOW", "0")
    settings.cache_clear()
    ledger = a_ledger(claimed)
    with pytest.raises(EffectPostponed, match="nothing was sent"):
        call(ledger, Queryable())
    assert not DESK.calls
    assert journal.one("SELECT state FROM effect") == "refused"
    assert isinstance(ledger.close(), EffectPostponed)


@pytest.mark.parametrize("trusted", [0, 1], ids=["before the intent", "after it"])
def test_outside_the_trust_window_nothing_leaves(
    journal: Journal, claimed: Claimed, trusted: int
) -> None:
    left = [None] * trusted

    def require_trust() -> None:
        if not left:
            raise LeaseLost("the lease could not be renewed in time")
        left.pop()

    ledger = a_ledger(claimed, trust=require_trust)
    with pytest.raises(AttemptLost, match="could not be renewed"):
        call(ledger, Queryable())
    assert not DESK.calls
    assert [row["state"] for row in journal.rows("SELECT state FROM effect")] == [
        "refused"
    ] * trusted
    assert isinstance(ledger.close(), AttemptLost)


def test_a_displaced_owner_sends_nothing(journal: Journal, claimed: Claimed) -> None:
    again(journal, claimed)
    with pytest.raises(AttemptLost, match="no longer owns the step"):
        call(a_ledger(claimed), Queryable())
    assert not DESK.calls


def test_an_answer_after_the_lease_was_taken_is_evidence(
    journal: Journal, claimed: Claimed
) -> None:
    def taken() -> Made:
        again(journal, claimed)
        journal.look.execute("UPDATE effect SET state = 'unknown', doubted_at = onward_now()")
        return Made("res-old")

    journal.freeze()
    DESK.then(taken)
    with pytest.raises(AttemptLost, match="kept as evidence"):
        call(a_ledger(claimed), Queryable())
    assert "res-old" in journal.one("SELECT result FROM effect_evidence")


def test_a_definite_failure_to_send_is_the_bodys(journal: Journal, claimed: Claimed) -> None:
    DESK.then(raises(NotSent("no route")))
    ledger = a_ledger(claimed)
    with pytest.raises(NotSent, match="no route"):
        call(ledger, Idempotent())
    assert ledger.close() is None


def test_threads_that_call_leave_no_connection_behind(journal: Journal, claimed: Claimed) -> None:
    ledger, leave = a_ledger(claimed), threading.Event()

    def calling(number: int) -> None:
        ledger.call(Queryable(), Wanted(number), name=f"thread {number}")
        leave.wait(20)

    threads = [threading.Thread(target=calling, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_until(
        lambda: journal.one("SELECT count(*) FROM effect_settlement") == 4, what="all have called"
    )
    _wait_for_one_connection(journal)
    leave.set()
    for thread in threads:
        thread.join()


def test_a_call_that_outlives_the_body_still_looks_before_its_effect(
    claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, gate = held()
    admitted = threading.Event()

    def asked(self: Queryable, request: object) -> Asked:
        admitted.set()
        prepare()
        return ask(self.request_type, request)

    class Struck(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise SoftTimeLimitExceeded

    def look() -> None:
        raise AttemptLost("the answers that this rests on are gone")

    monkeypatch.setattr(Queryable, "asked", asked)
    ledger = a_ledger(claimed)
    ledger.before_effects(look)
    ledger._changed = Struck(ledger._lock)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(ledger.call, Queryable(), Wanted(), name="late")
        assert admitted.wait(20)
        assert isinstance(
            ledger.close(), EffectUnknown
        )  # cut short: it waits for the call no longer
        gate.set()
        with pytest.raises(AttemptLost, match="are gone"):
            late.result(20)
    assert DESK.calls == []


def _interrupt_waiting(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Strike the body's own thread while it waits for a call that has left, as a signal does."""

    class Struck(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread() is threading.main_thread():
                wait_until(lambda: DESK.calls, what="the call has left")
                raise error
            return super().wait(timeout)

    monkeypatch.setattr("tasks.calling.Event", Struck)


def _wait_for_one_connection(journal: Journal) -> None:
    wait_until(
        lambda: (
            journal.one(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward'"
                " AND datname = current_database()"
            )
            <= 1
        ),
        what="only the test's own connection is left",
    )
