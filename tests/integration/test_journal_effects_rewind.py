"""A journal that went back in time: what it does not know of may have been sent in what was lost."""

from datetime import timedelta

import pytest

from models.journal import effects
from models.journal.effect_values import Granted, InDoubt, Promise, Recorded, Withheld
from models.journal.values import Claimed
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    ONCE,
    QUERYABLE,
    asking,
    at_work,
    effect,
    intend,
    put,
    send,
    stories,
)
from tests.support.journal import Journal

REWOUND = InDoubt("the journal went back in time, and it may have been sent in what was lost")
STORY = ("effect_unknown", REWOUND.detail)


def rewind(journal: Journal, *, ago: float) -> None:
    """Declare that the journal is one of ``ago`` seconds before now."""
    journal.look.execute(
        "INSERT INTO rewind (rewound_to, actor)"
        " VALUES (onward_now() - make_interval(secs => %s), 'ada')",
        (ago,),
    )


def rewound(journal: Journal, *, ago: float = 600.0) -> Claimed:
    """A step claimed in a run that was there when the journal went back."""
    journal.freeze()
    claimed = at_work()
    journal.advance(1)
    rewind(journal, ago=ago)
    journal.advance(1)
    return claimed


@pytest.mark.parametrize("promise", [QUERYABLE, ONCE], ids=["queryable", "once"])
def test_a_first_send_is_looked_up_first(journal: Journal, promise: Promise) -> None:
    claimed = rewound(journal)
    assert intend(claimed, asking(promise=promise)) == REWOUND
    row = effect(journal)
    declared = journal.one("SELECT declared_at FROM rewind")
    assert (row["state"], row["sends"], row["token"]) == ("unknown", 1, 1)
    assert (row["doubted_at"], row["first_sent_at"]) == (declared, declared)
    expected = declared + timedelta(seconds=95) if promise is QUERYABLE else None
    assert row["absent_after"] == expected
    assert row["due_at"] <= journal.one("SELECT onward_now()")
    assert stories(journal, claimed.run_id) == [STORY]

    before = journal.image()
    assert isinstance(intend(claimed, asking(promise=promise)), InDoubt)
    assert journal.image() == before
    put(journal, state="absent")
    assert send(claimed, asking(promise=promise)) == Granted(2)


def test_a_key_that_is_certainly_still_honoured_is_sent(journal: Journal) -> None:
    claimed = rewound(journal, ago=3590.0)
    assert send(claimed, asking(promise=IDEMPOTENT)) == Granted(1)


def test_a_key_that_may_have_been_forgotten_is_looked_up(journal: Journal) -> None:
    claimed = rewound(journal, ago=3601.0)
    assert intend(claimed, asking(promise=IDEMPOTENT)) == REWOUND


def test_the_earliest_loss_and_the_latest_declaration_count(journal: Journal) -> None:
    claimed = rewound(journal, ago=3601.0)
    rewind(journal, ago=0.0)
    assert intend(claimed, asking(promise=IDEMPOTENT)) == REWOUND
    assert effect(journal)["doubted_at"] == journal.one("SELECT max(declared_at) FROM rewind")


def test_a_run_begun_afterwards_has_lost_nothing(journal: Journal) -> None:
    rewound(journal)
    assert send(at_work()) == Granted(1)


def test_only_losses_within_the_life_of_a_run_count(journal: Journal) -> None:
    rewound(journal, ago=7200.0)
    claimed = at_work()
    journal.advance(1)
    rewind(journal, ago=0.0)
    assert send(claimed, asking(promise=IDEMPOTENT)) == Granted(1)


@pytest.mark.parametrize("state", ["refused", "absent"])
def test_what_was_known_not_to_have_happened_may_have_happened_since(
    journal: Journal, state: str
) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    put(journal, state=state, looks=2, failed_checks=1, looker="x", looker_until="2000-01-01Z",
        call_over=True)  # fmt: skip
    journal.advance(1)
    rewind(journal, ago=600.0)
    journal.advance(1)
    assert intend(claimed) == REWOUND
    row, declared = effect(journal), journal.one("SELECT declared_at FROM rewind")
    assert (row["state"], row["sends"], row["doubted_at"]) == ("unknown", 1, declared)
    assert (row["looks"], row["failed_checks"], row["looker"]) == (0, 0, None)
    assert (row["looker_until"], row["call_over"]) == (None, False)
    assert row["absent_after"] == declared + timedelta(seconds=95)
    assert row["due_at"] == journal.one("SELECT onward_now()")
    assert stories(journal, claimed.run_id) == [STORY]
    put(journal, state="absent")
    assert send(claimed) == Granted(2)


def test_a_refusal_after_the_declaration_stands(journal: Journal) -> None:
    claimed = rewound(journal)
    intend(claimed)
    put(journal, state="absent")
    send(claimed)
    assert effects.refuse(KEY, claimed, error="no")
    assert send(claimed) == Granted(3)


def test_a_refused_key_that_is_still_honoured_is_sent_again(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed, asking(promise=IDEMPOTENT))
    effects.refuse(KEY, claimed, error="no")
    journal.advance(1)
    rewind(journal, ago=7200.0)
    assert send(claimed, asking(promise=IDEMPOTENT)) == Granted(2)


def test_what_is_settled_is_settled(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    effects.settle(KEY, claimed, result="1")
    journal.advance(1)
    rewind(journal, ago=600.0)
    assert intend(claimed) == Recorded("1", 1)


def test_a_run_that_is_held_writes_no_doubt_either(journal: Journal) -> None:
    claimed = rewound(journal)
    journal.look.execute("UPDATE run SET hold = 'cancel'")
    before = journal.image()
    assert intend(claimed) == Withheld("cancel")
    assert journal.image() == before
