"""The artifact store as a whole: is everything there, and what does nobody need any more?"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from models.artifacts.places import TEMPORARY
from models.artifacts.store import Kept, Store, current
from models.errors import OnwardError
from models.journal import artifacts
from models.journal.artifacts import Known

_PAGE = 500
_EVERY = 1_000_000


@dataclass(frozen=True, slots=True)
class Wrong:
    """One artifact that is not what was recorded, or cannot be read."""

    digest: str
    problem: str
    sentence: str


@dataclass(slots=True)
class Verified:
    """What a look at artifacts came to."""

    whole: int = 0
    wrong: list[Wrong] = field(default_factory=list)


@dataclass(slots=True)
class Collected:
    """What was removed, or would be: digests, and files that never got one."""

    orphans: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  #: whole files that no row tells of
    temporary: list[str] = field(default_factory=list)  #: left by uploads that were killed
    bytes: int = 0

    @property
    def count(self) -> int:
        return len(self.orphans) + len(self.unknown) + len(self.temporary)


def verify(*, run_id: str | None = None) -> Verified:
    """Read every artifact that is needed to its end; only those of one run, when it is named."""
    found, store = Verified(), current()
    for known in _needed(run_id):
        try:
            store.verify(known.digest, size=known.size)
            found.whole += 1
        except OnwardError as error:
            found.wrong.append(Wrong(known.digest, error.error_type, str(error)))
    return found


def collect(*, older_than: float, dry_run: bool = False) -> Collected:
    """Remove what nothing refers to, and what killed uploads left, both older than ``older_than`` seconds.

    What is being written, or was written a moment ago and is not referred to yet, is younger than that.
    """
    store, found = current(), Collected()
    sizes = {kept.digest: kept.size for kept in store.files() if kept.digest is not None}
    for digest in artifacts.orphans(older_than=older_than):
        if dry_run or _forget(store, digest, older_than=older_than):
            found.orphans.append(digest)
            found.bytes += sizes.get(digest, 0)
    for kept in _strangers(store, older_than=older_than):
        if kept.digest is None:
            if not dry_run:
                store.remove(kept.name)
            found.temporary.append(kept.name)
        elif dry_run or _forget(store, kept.digest, older_than=older_than):
            found.unknown.append(kept.digest)
        else:
            continue
        found.bytes += kept.size
    return found


def _needed(run_id: str | None) -> Iterator[Known]:
    return (known for known in artifacts.known(run_id=run_id, limit=_EVERY) if known.needed)


def _strangers(store: Store, *, older_than: float) -> Iterator[Kept]:
    """Old files that the journal does not know, temporary ones first as they are listed. Others' files are left."""
    old = [kept for kept in store.files() if kept.age is not None and kept.age >= older_than]
    named = [kept for kept in old if kept.digest is not None]
    for start in range(0, len(named), _PAGE):
        page = named[start : start + _PAGE]
        known = artifacts.noted([kept.digest for kept in page if kept.digest is not None])
        yield from (kept for kept in page if kept.digest not in known)
    yield from (kept for kept in old if kept.name.startswith(f"{TEMPORARY}/"))


def _forget(store: Store, digest: str, *, older_than: float) -> bool:
    with artifacts.forgetting(digest, older_than=older_than) as goes:
        if goes:
            store.forget(digest)
    return goes
