"""What a step gets from the artifact store before its body runs, and what it puts there of its own accord."""

import re
from collections.abc import Iterator

from models.artifacts import payloads
from models.artifacts.errors import ArtifactUnavailable, Withheld
from models.artifacts.store import Stored, current
from models.failpoints import FailPoint, failpoint
from models.journal import artifacts
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import inputs, patience
from tasks.artifacts import KIND, Artifact, Artifacts
from tasks.context import Context
from tasks.errors import EffectBlocked, EffectPostponed, Stop
from tasks.inputs import Given

_PAUSE = 15.0  #: seconds until a store that did not answer is asked again
_MARK = f'{{"kind":"{KIND}","digest":"'
_SEEN = re.compile(
    re.escape(_MARK) + r'(sha256:[0-9a-f]{64})","size":(\d+),"name":"((?:[^"\\]|\\.)*)"'
)


def given(claimed: Claimed) -> Given:
    """What the step works on, once everything that belongs to it is what was recorded.

    That is its own arguments and what is piped to it, wherever they are kept, the artifacts that they name,
    and answers of earlier attempts that it would replay. Raises ``ArtifactChanged`` before any of the
    step's code ran, and ``EffectPostponed`` while the store does not answer.
    """
    try:
        found = inputs.given(claimed)
        _verify(claimed, found)
    except ArtifactUnavailable as error:
        raise EffectPostponed(
            f"step {claimed.step_key!r} needs what is kept outside the journal, and {error}. It is looked for "
            f"again in {_PAUSE:.0f} s; nothing is counted",
            delay=_PAUSE,
        ) from error
    return found


def kept(text: str, claimed: Claimed, *, step_name: str) -> str:
    """What is recorded of a result: itself, or what stands for it once it is in the artifact store.

    A store that does not answer is asked for up to two leases, since the work is done. Raises
    ``ArtifactUnavailable``, ``ArtifactTooLarge``, ``EncryptionProblem``.
    """
    if not payloads.is_moved(text):
        return payloads.seal(text)
    return patience.persistent(
        lambda: payloads.offload(
            text, run_id=claimed.run_id, step_key=claimed.step_key, name="output",
            halfway=lambda: failpoint(FailPoint.P4, step_name),
        ),
        ArtifactUnavailable,
    )  # fmt: skip


def make(_ctx: Context, claimed: Claimed) -> Artifacts:
    """``ctx.artifact`` of one attempt."""

    def note(stored: Stored, made: Artifact) -> None:
        facts = {"run_id": claimed.run_id, "step_key": claimed.step_key, "name": made.name}
        patience.recorded(
            lambda: artifacts.note(stored, role="made", **facts),
            confirmed=lambda: None,
            stoppable=True,
        )
        if not current().has(stored.digest):
            raise ArtifactUnavailable(
                current().url,
                f"{made.name!r} was collected as an orphan before it was noted; put it again",
            )

    return Artifacts(current(), note=note, withhold=_stop)


def _verify(claimed: Claimed, found: Given) -> None:
    named = {
        seen.digest: seen for text in (found.arguments, found.piped or "") for seen in _in(text)
    }
    store = current() if named else None
    for seen in named.values():
        assert store is not None  # noqa: S101 - there is something to verify
        store.verify(seen.digest, size=seen.size, name=seen.name)
        artifacts.use(seen.digest, run_id=claimed.run_id, step_key=claimed.step_key, name=seen.name)
    if claimed.attempt > 1:
        earlier = artifacts.recorded_texts(claimed.run_id, claimed.step_key)
        for reference in payloads.references(earlier):
            current().verify(reference.digest, size=reference.size)


def _in(text: str) -> Iterator[Artifact]:
    """The artifacts that a recorded text names."""
    if _MARK not in text:
        return
    for digest, size, name in _SEEN.findall(text):
        yield Artifact(digest=digest, size=int(size), name=name)


def _stop(error: Withheld) -> Stop:
    """Not an ``Exception``: a body that catches those must not go on without what it took."""
    return EffectBlocked(str(error), reason=BlockReason.ARTIFACT_CHANGED)
