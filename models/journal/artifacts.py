"""What the journal knows of content kept outside it: which there is, and who needs it.

A row is written after the file is whole, and before anything refers to it. Whoever writes one and whoever
removes a file take the same lock, by digest: so a file is either noted, and then it is not an orphan, or
gone, and then ``note`` is followed by a look that finds it missing and puts it again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from models import database
from models.artifacts.store import Stored

#: How a recorded text begins that stands for one kept elsewhere, or encrypted.
WRAPPED: LiteralString = '{"$onward-'

_LOCK: LiteralString = "pg_advisory_xact_lock(hashtextextended(%(digest)s, 1634890866))"

#: Noted again is fresh again: what a retry of the same content puts is no orphan of the first try.
_NOTE: LiteralString = f"""
WITH locked AS MATERIALIZED (SELECT {_LOCK}), kept AS (
    INSERT INTO artifact (digest, size, encoding, stored_size, encrypted)
    SELECT %(digest)s, %(size)s, %(encoding)s, %(stored_size)s, %(encrypted)s FROM locked
    ON CONFLICT (digest) DO UPDATE SET created_at = onward_now(), encoding = excluded.encoding,
        stored_size = excluded.stored_size, encrypted = excluded.encrypted
)
INSERT INTO artifact_use (run_id, step_key, digest, name, role)
SELECT %(run_id)s, %(step_key)s, %(digest)s, %(name)s, %(role)s FROM locked
ON CONFLICT DO NOTHING"""

_USE: LiteralString = """
INSERT INTO artifact_use (run_id, step_key, digest, name, role)
VALUES (%(run_id)s, %(step_key)s, %(digest)s, %(name)s, %(role)s)
ON CONFLICT DO NOTHING"""

#: A use counts while the text that it stands for is recorded, or may still be: what a step put by hand may
#: have gone anywhere, and stays as long as its run; a value that was moved out of the journal is needed by
#: the row that refers to it, and by a step that has not ended.
_NEEDED: LiteralString = """EXISTS (
    SELECT 1 FROM artifact_use u JOIN run r ON r.run_id = u.run_id
    WHERE u.digest = a.digest AND (
        u.role IN ('made', 'taken')
        OR EXISTS (SELECT 1 FROM live l WHERE l.run_id = u.run_id AND l.step_key = u.step_key)
        OR strpos(CASE WHEN u.step_key = '' THEN r.input END, a.digest) > 0
        OR EXISTS (SELECT 1 FROM step s WHERE s.run_id = u.run_id AND s.step_key = u.step_key
                   AND starts_with(s.output, '{"$onward-') AND strpos(s.output, a.digest) > 0)
        OR EXISTS (SELECT 1 FROM plan p WHERE p.run_id = u.run_id AND p.step_key = u.step_key
                   AND starts_with(p.arguments, '{"$onward-') AND strpos(p.arguments, a.digest) > 0)
        OR EXISTS (SELECT 1 FROM attempt t WHERE t.run_id = u.run_id AND t.step_key = u.step_key
                   AND starts_with(t.output, '{"$onward-') AND strpos(t.output, a.digest) > 0)
        OR EXISTS (SELECT 1 FROM recorded_call c WHERE c.run_id = u.run_id AND c.step_key = u.step_key
                   AND (starts_with(c.request, '{"$onward-') AND strpos(c.request, a.digest) > 0
                        OR starts_with(c.answer, '{"$onward-') AND strpos(c.answer, a.digest) > 0))
    ))"""


@dataclass(frozen=True, slots=True)
class Known:
    """An artifact as the journal has it."""

    digest: str
    size: int
    encoding: str
    stored_size: int
    encrypted: bool
    created_at: datetime
    uses: int
    needed: bool


@dataclass(frozen=True, slots=True)
class Use:
    """One step that made or took an artifact."""

    run_id: str
    step_key: str
    digest: str
    size: int
    name: str
    role: str


def note(stored: Stored, *, run_id: str, step_key: str, name: str, role: str) -> None:
    """Record that content is kept, and what for. May be repeated."""
    database.fetch(
        _NOTE,
        {
            "digest": stored.digest, "size": stored.size, "encoding": stored.encoding,
            "stored_size": stored.stored_size, "encrypted": stored.encrypted, "run_id": run_id,
            "step_key": step_key, "name": name, "role": role,
        },
    )  # fmt: skip


def use(digest: str, *, run_id: str, step_key: str, name: str, role: str = "taken") -> None:
    """Record that a step takes what is kept already. May be repeated."""
    database.fetch(
        _USE,
        {"digest": digest, "run_id": run_id, "step_key": step_key, "name": name, "role": role},
    )


def known(*, run_id: str | None = None, limit: int = 100) -> list[Known]:
    """Artifacts, newest first; those of one run, or all."""
    rows = database.fetch(
        f"""
        SELECT a.digest, a.size, a.encoding, a.stored_size, a.encrypted, a.created_at,
               (SELECT count(*) FROM artifact_use u WHERE u.digest = a.digest), {_NEEDED}
        FROM artifact a
        WHERE %(run_id)s::text IS NULL OR EXISTS (
            SELECT 1 FROM artifact_use u WHERE u.digest = a.digest AND u.run_id = %(run_id)s)
        ORDER BY a.created_at DESC, a.digest LIMIT %(limit)s""",
        {"run_id": run_id, "limit": limit},
    )
    return [Known(*row) for row in rows]


def uses(run_id: str) -> list[Use]:
    """What the steps of a run made and took."""
    rows = database.fetch(
        """
        SELECT u.run_id, u.step_key, u.digest, a.size, u.name, u.role
        FROM artifact_use u JOIN artifact a ON a.digest = u.digest
        WHERE u.run_id = %(run_id)s ORDER BY u.at, u.step_key, u.name""",
        {"run_id": run_id},
    )
    return [Use(*row) for row in rows]


def recorded_texts(run_id: str, step_key: str) -> list[str]:
    """Requests and answers of a step's calls that are kept elsewhere: what another attempt would replay."""
    rows = database.fetch(
        """
        SELECT unnest(ARRAY[request, answer]) FROM recorded_call
        WHERE run_id = %(run_id)s AND step_key = %(step_key)s
          AND (starts_with(request, '{"$onward-artifact') OR starts_with(answer, '{"$onward-artifact'))""",
        {"run_id": run_id, "step_key": step_key},
    )
    return [row[0] for row in rows if row[0].startswith(WRAPPED)]


def orphans(*, older_than: float) -> list[str]:
    """Digests that nothing refers to, noted longer than ``older_than`` seconds ago."""
    rows = database.fetch(
        f"""
        SELECT a.digest FROM artifact a
        WHERE a.created_at <= onward_now() - make_interval(secs => %(older)s) AND NOT {_NEEDED}
        ORDER BY a.created_at""",
        {"older": older_than},
    )
    return [row[0] for row in rows]


def noted(digests: Sequence[str]) -> set[str]:
    """Which of these the journal knows."""
    rows = database.fetch(
        "SELECT digest FROM artifact WHERE digest = ANY(%(digests)s)", {"digests": list(digests)}
    )
    return {row[0] for row in rows}


@contextmanager
def forgetting(digest: str, *, older_than: float) -> Iterator[bool]:
    """Forget an orphan, or find that it is none any more: then False, and its file must stay.

    The file is removed inside, under the lock that keeps others from noting it meanwhile.
    """
    params = {"digest": digest, "older": older_than}
    with database.transaction() as link:
        link.execute(f"SELECT {_LOCK}", params)
        row = link.execute(
            f"""
            SELECT {_NEEDED} OR a.created_at > onward_now() - make_interval(secs => %(older)s)
            FROM artifact a WHERE a.digest = %(digest)s""",
            params,
        ).fetchone()
        goes = row is None or not row[0]
        if goes:
            link.execute("DELETE FROM artifact_use WHERE digest = %(digest)s", params)
            link.execute("DELETE FROM artifact WHERE digest = %(digest)s", params)
        yield goes
