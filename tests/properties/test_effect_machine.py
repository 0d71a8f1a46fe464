"""Any order of sends, answers, losses, look-ups and people's words, over the real journal.

The machine plays every owner, displaced ones among them, every looker and every person, and keeps a book of
its own: which sends are open, which keys are settled. What may never happen is looked for after each move.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from models.journal import doubts, effects, lookups, losing, rescue, resolving
from models.journal.effect_values import (
    Conflict,
    Exhausted,
    GivenUp,
    Granted,
    InDoubt,
    Recorded,
    Standing,
    Withheld,
)
from models.journal.errors import LeaseLost, Refused
from models.journal.values import BranchRef, Claimed
from tests.support.effect_book import Book
from tests.support.intents import IDEMPOTENT, ONCE, QUERYABLE, SENDER, asking
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.machines import play

PROMISES = {"queryable": QUERYABLE, "once": ONCE, "idempotent": IDEMPOTENT}
DIGESTS = ("sha256:request", "sha256:another")

picks = st.integers(0, 10**6)
names = st.sampled_from(tuple(PROMISES))
silences = st.sampled_from((31.0, 31.0, 31.0, 3601.0))
outcomes = st.sampled_from(("", "", "refuse", "refuse", "settle"))


class EffectMachine(Book, RuleBasedStateMachine):
    """One step of one run, and three things that it asks for."""

    def __init__(self, journal: Journal) -> None:
        RuleBasedStateMachine.__init__(self)
        Book.__init__(self, journal)

    @initialize()
    def submit(self) -> None:
        self.run_id = submit_run(row_of("a"))
        self.claims.append(Worker().take(self.run_id, "a"))

    # -- owners

    @rule(pick=picks, name=names, other=st.integers(0, 7), then=outcomes)
    def ask(self, pick: int, name: str, other: int, then: str) -> None:
        """Mostly the same request, sometimes another one under its key; ``then``: what the call comes to."""
        claimed, key = self.pick_claim(pick), self.key(name)
        digest = DIGESTS[other == 0]
        intent = asking(key, PROMISES[name], request_digest=digest)
        before = self.journal.image()
        if not self.holds(claimed):
            with pytest.raises(LeaseLost):
                effects.intend(intent, claimed, SENDER)
            assert self.journal.image() == before
            return
        known = self.known(key)
        standing = effects.intend(intent, claimed, SENDER)
        if not isinstance(standing, Granted):
            self.not_sent(standing, key, before)
            return
        assert known is None or known["request_digest"] in (None, digest), known
        self.send(name, known, standing)
        self.open[key].add(claimed.token)
        if then:
            getattr(self, then)(claimed, key)

    def send(self, name: str, known: dict[str, Any] | None, granted: Granted) -> None:
        """I1: a second send needs a proof that the first did nothing, or a provider who knows the key."""
        key = self.key(name)
        assert key not in self.settled, "sent although it is settled"
        if self.open[key]:
            assert name == "idempotent", "sent again with nothing proven in between"
            assert known is None or known["resend_until"] > self.journal.one("SELECT onward_now()")
        self.granted[key] = self.granted.get(key, 0) + 1
        assert granted.sends >= self.granted[key]

    def not_sent(self, standing: Standing, key: str, before: dict[str, list[str]]) -> None:
        if isinstance(standing, InDoubt) and "back in time" in standing.detail:
            return  # that doubt is written down
        assert self.journal.image() == before
        match standing:
            case Recorded(result):
                assert self.settled[key]["result"] == result
            case GivenUp():
                assert self.settled[key]["outcome"] == "abandoned"
            case Conflict() | InDoubt():
                assert key in self.settled or self.known(key) is not None
            case _:
                assert isinstance(standing, Exhausted), standing

    @rule(pick=picks, name=names, how=st.sampled_from(("settle", "refuse")))
    def hear_an_answer(self, pick: int, name: str, how: str) -> None:
        getattr(self, how)(self.pick_claim(pick), self.key(name))

    def settle(self, claimed: Claimed, key: str) -> None:
        if self.sent_by(key, claimed):
            effects.settle(key, claimed, result=f'"{claimed.token}"')
        elif key not in self.settled:
            kept = self.journal.image()["effect_settlement"]
            with pytest.raises(LeaseLost):
                effects.settle(key, claimed, result=f'"{claimed.token}"')
            assert self.journal.image()["effect_settlement"] == kept

    def refuse(self, claimed: Claimed, key: str) -> None:
        """It proves that this send did nothing, and nothing about those before it."""
        ours, before = self.sent_by(key, claimed), self.journal.image()
        refused = effects.refuse(key, claimed, error="no")
        if not ours:
            assert self.journal.image() == before
            return
        self.open[key].discard(claimed.token)
        assert refused == (not self.open[key] - {0})

    @rule(pick=picks, name=names, call_over=st.booleans())
    def doubt(self, pick: int, name: str, call_over: bool) -> None:
        """By the sender, or by somebody displaced, who may only say that his call has ended (I7)."""
        claimed, key = self.pick_claim(pick), self.key(name)
        ours, known, before = self.sent_by(key, claimed), self.known(key), self.journal.image()
        effects.doubt(key, claimed, error="cut", call_over=call_over)
        now = self.known(key)
        if ours:
            assert now is not None
            assert (now["state"], now["call_over"]) == ("unknown", call_over)
        elif now != known:
            assert now is not None
            assert known is not None
            assert call_over
            assert not known["call_over"]
            assert (now["state"], now["token"]) == ("unknown", claimed.token)
        else:
            assert self.journal.image() == before

    @rule(pick=picks, name=names)
    def bring_a_late_answer(self, pick: int, name: str) -> None:
        claimed, key = self.pick_claim(pick), self.key(name)
        known = self.known(key)
        effects.keep_evidence(key, claimed, result=f'"{claimed.token}"')
        now = self.known(key)
        if known and now and known["revision"] != now["revision"]:
            assert now["state"] == "unknown"
            self.open[key].add(claimed.token)  # a belief in its absence is taken back

    # -- those who act from outside

    @rule(name=names, then=outcomes)
    def ask_at_once(self, name: str, then: str) -> None:
        """What an attempt of a fixed body does: the same request, by whoever holds the step."""
        self.ask(pick=1, name=name, other=1, then=then)

    @rule(name=names, then=outcomes, blindly=st.booleans(), seconds=silences)
    def take_over(self, name: str, then: str, blindly: bool, seconds: float) -> None:
        """The owner falls silent, and the next asks again. ``blindly``: with no look at what the first did."""
        self.journal.advance(seconds)
        losing.expire([ref for ref in losing.expired(limit=10) if ref.run_id == self.run_id])
        for step in rescue.unknown_steps(limit=10, run_id=self.run_id):
            ref = BranchRef(step.run_id, step.branch, step.revision)
            if step.unsettled_effects and not blindly:
                doubts.doubt_step(ref, pause=1.0)
            else:
                rescue.requeue([ref], [0.0])
        doubts.doubt_strays(limit=10)
        number = len(self.claims) + 1
        claimed = Worker(start_id=f"start-{number}").claim(self.run_id, "a")
        if claimed is not None:
            self.claims.append(claimed)
            self.ask_at_once(name=name, then=then)

    @rule(name=names)
    def begin_to_look(self, name: str) -> None:
        self.lookers += 1
        effect = lookups.begin(self.key(name), looker=f"{self.run_id}-{self.lookers}")
        if effect is not None:
            self.looks.append(effect)

    @precondition(lambda self: self.looks)
    @rule(
        pick=picks, what=st.sampled_from(("found", "absent", "absent", "again", "failed", "person"))
    )
    def end_a_look(self, pick: int, what: str) -> None:
        """By a looker whose time may be over, about an effect that may have moved on."""
        effect = self.looks[pick % len(self.looks)]
        match what:
            case "found":
                lookups.found(effect, result='"looked up"', source="lookup", said="there")
            case "absent":
                if lookups.believe_absent(effect, said="not there"):
                    self.open[effect.key].clear()
            case "again":
                lookups.look_again(effect, after=1.0, counts=True, said="not yet")
            case "failed":
                lookups.check_failed(effect, after=1.0, said="no answer")
            case _:
                lookups.ask_person(effect, said="two of them")

    @rule(
        name=names, what=st.sampled_from(("found", "absent", "abandon")), chance=st.integers(0, 3)
    )
    def hear_a_person(self, name: str, what: str, chance: int) -> None:
        key = self.key(name)
        if chance or self.known(key) is None:
            return
        with suppress(Refused):
            match what:
                case "found":
                    resolving.found(
                        key, external_id="F-1", result='"F-1"', by="ada", reason="saw it"
                    )
                case "absent":
                    resolving.absent(key, by="ada", reason="looked")
                    self.open[key].clear()
                case _:
                    resolving.abandon(key, by="ada", reason="gone")

    @rule(then=outcomes)
    def ask_a_patient_provider(self, then: str) -> None:
        """Two owners in a row send the same key; what the second hears says little about the first."""
        for outcome in ("", then):
            self.take_over(name="idempotent", then=outcome, blindly=False, seconds=31.0)

    @rule(chance=st.integers(0, 3), ago=st.sampled_from((60.0, 7200.0)), name=names)
    def go_back_in_time(self, chance: int, ago: float, name: str) -> None:
        """Anything that is not settled may have been sent in what was lost."""
        if chance:
            return
        self.journal.advance(1)
        self.journal.look.execute(
            "INSERT INTO rewind (rewound_to, actor)"
            " VALUES (onward_now() - make_interval(secs => %s), 'ada')",
            (ago,),
        )
        for key in {self.key(name) for name in PROMISES} - set(self.settled):
            self.open[key].add(0)
        self.ask_at_once(name=name, then="")

    @rule(name=names)
    def ask_while_held(self, name: str) -> None:
        """Nothing is sent for a run that was cancelled, whatever is known of it."""
        hold = "UPDATE run SET hold = %s WHERE run_id = %s"
        self.journal.look.execute(hold, ("cancel", self.run_id))
        before = self.journal.image()
        with suppress(LeaseLost):
            standing = effects.intend(
                asking(self.key(name), PROMISES[name]), self.claims[-1], SENDER
            )
            assert isinstance(standing, Withheld) or self.key(name) in self.settled
        assert self.journal.image() == before
        self.journal.look.execute(hold, (None, self.run_id))

    # -- what may never happen

    @invariant()
    def nothing_impossible(self) -> None:
        if self.run_id:
            self.check()

    def teardown(self) -> None:
        self.clear()
        super().teardown()


def test_nothing_is_sent_twice_whatever_comes_in_whatever_order(journal: Journal) -> None:
    play(EffectMachine, journal, examples=60, moves=40)
