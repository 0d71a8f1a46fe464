"""Effects in doubt, and the people who decide about them."""

from models.journal import effects, rescue, resolving
from models.journal.resolving import Resolved
from models.journal.values import BranchRef, Claimed
from models.states import BlockReason
from tests.support.intents import KEY, asking, at_work, put, send
from tests.support.journal import Journal, Worker

OTHER = asking(request_digest="sha256:other", request='{"servers":10}')
WHO = {"by": "alice", "reason": "asked the provider"}
LOOK_WHO = "registry.file cannot be looked up"


def found(key: str = KEY) -> Resolved:
    return resolving.found(key, external_id="srv-1", result='"srv-1"', **WHO)


def absent(key: str = KEY) -> Resolved:
    return resolving.absent(key, **WHO)


def abandon(key: str = KEY) -> Resolved:
    return resolving.abandon(key, **WHO)


def in_doubt(claimed: Claimed | None = None, *keys: str) -> Claimed:
    """A step that was given back with these effects in doubt."""
    claimed = claimed or at_work()
    for key in keys or (KEY,):
        send(claimed, asking(key))
        effects.doubt(key, claimed, error="the answer was lost", call_over=True)
    Worker().interrupt(claimed)
    return claimed


def needs_person(journal: Journal, *keys: str) -> Claimed:
    """The same, blocked until somebody decides."""
    claimed = in_doubt(None, *keys)
    for key in keys or (KEY,):
        put(journal, key=key, person=LOOK_WHO)
    rescue.block(
        journal.ref(claimed.run_id), BlockReason.UNKNOWN_EFFECT, detail=f"{KEY}: {LOOK_WHO}", failed=False
    )  # fmt: skip
    assert journal.run(claimed.run_id)["state"] == "blocked"
    return claimed


def next_attempt(claimed: Claimed) -> Claimed:
    """What the sweep and a worker make of a step that goes on."""
    (stale,) = rescue.unknown_steps(limit=10)
    rescue.requeue([BranchRef(stale.run_id, stale.branch, stale.revision)], [0.0])
    return Worker("worker-2", "start-2").take(claimed.run_id, claimed.step_key)
