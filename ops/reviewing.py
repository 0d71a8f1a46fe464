"""Reviewing a user's own documents with the example agent: what is submitted, under which keys, and what came out.

A document's key is made of the agent's version, its address and its content: reviewing a folder again
reuses every finished review, goes on with stopped ones, and reviews what is new or has changed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from examples.contract_review import corpus
from examples.contract_review.documents import Listing, list_documents
from examples.contract_review.estimate import Estimate, estimate
from models.artifacts.payloads import load_optional
from models.decoding import decode
from models.errors import OnwardError
from models.ids import new_nonce
from models.journal import history
from models.states import RunState
from ops import client, resuming
from tasks import registry

AGENT = "examples.contract_review.agent"
WORKFLOW = "contract-review"
_BLOCK = 1 << 20  #: bytes read at a time to digest a file


class NothingToReview(OnwardError):
    """The path holds no document of a supported type."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One document and how far its review is."""

    uri: str
    run_id: str
    state: str
    reused: bool  #: finished before this command was given
    result: object = None  #: the filing's id
    problem: str | None = None

    @property
    def moves(self) -> bool:
        return self.state in (RunState.PENDING, RunState.RUNNING, RunState.WAITING)

    @property
    def name(self) -> str:
        return unquote(self.uri.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Review:
    """One submission of a path's documents."""

    batch_id: str
    uris: tuple[str, ...]
    run_ids: tuple[str, ...]
    reused: frozenset[str]  #: runs that were complete already


def expand(path: Path) -> tuple[Listing, Estimate]:
    """The documents of a path, and what reviewing them will ask of the LLM. Raises ``NothingToReview``."""
    listing = list_documents(path)
    if not listing.uris:
        reasons = "; ".join(
            f"{skipped.path.name}: {skipped.reason}" for skipped in listing.skipped[:3]
        )
        raise NothingToReview(f"{path} holds no document to review. {reasons}".strip())
    return listing, estimate(listing.uris)


def expand_corpus(count: int) -> tuple[Listing, Estimate]:
    """The first documents of the demo, as ``expand`` gives those of a path."""
    uris = corpus.default_uris()[:count]
    return Listing(uris, ()), estimate(uris)


def submit(uris: Sequence[str], *, again: bool, by: str) -> Review:
    """Submit every document as a run of its own; runs of an earlier submission that stopped go on."""
    registry.load_agents(AGENT)
    version = registry.get_workflow(WORKFLOW).version
    salt = new_nonce() if again else ""
    keys = [document_key(uri, version=version, salt=salt) for uri in uris]
    batch = client.submit_batch(
        WORKFLOW, [{"uri": uri} for uri in uris], keys=keys, batch_id=_batch_id(keys),
        label=f"review of {len(uris)} documents",
    )  # fmt: skip
    run_ids = [run.run_id for run in batch.runs]
    known = history.get_runs([run.run_id for run in batch.runs if not run.created])
    for run in known.values():
        if run.state in (RunState.FAILED, RunState.BLOCKED):
            resuming.resume(run.run_id, by=by)
    reused = frozenset(run.run_id for run in known.values() if run.state == RunState.COMPLETED)
    return Review(batch.batch_id, tuple(uris), tuple(run_ids), reused)


def look(review: Review) -> list[Reviewed]:
    """Where every document stands now."""
    found = history.get_runs(list(review.run_ids))
    return [
        Reviewed(
            uri, run_id, found[run_id].state, run_id in review.reused,
            problem=found[run_id].detail or found[run_id].cancel_reason,
        )
        for uri, run_id in zip(review.uris, review.run_ids, strict=True)
    ]  # fmt: skip


def with_results(found: Sequence[Reviewed]) -> list[Reviewed]:
    """The same with the results of what is completed."""
    return [
        Reviewed(one.uri, one.run_id, one.state, one.reused, _filing(one.run_id))
        if one.state == RunState.COMPLETED
        else one
        for one in found
    ]


def document_key(uri: str, *, version: str, salt: str = "") -> str:
    """The submission key of one document: version, address and content, and no more than they."""
    digest = hashlib.sha256(f"{version}\0{uri}\0{salt}\0".encode())
    if uri.startswith(corpus.SCHEME):
        digest.update(corpus.read_agreement(uri.removeprefix(corpus.SCHEME)).text.encode())
        return _key(digest.hexdigest())
    try:
        with Path(unquote(urlsplit(uri).path)).open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        digest.update(
            f"unreadable: {error.errno}".encode()
        )  # once it can be read it is another key
    return _key(digest.hexdigest())


def _key(digest: str) -> str:
    return f"review:{digest[:40]}"


def _batch_id(keys: Sequence[str]) -> str:
    """The same documents are the same batch, so that a review cut short goes on in it."""
    return "review-" + hashlib.sha256("\n".join(keys).encode()).hexdigest()[:20]


def _filing(run_id: str) -> object:
    output = load_optional(history.outcome(run_id).output)
    return None if output is None else decode(output)
