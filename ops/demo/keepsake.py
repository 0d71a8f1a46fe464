"""What existed before a fault must be the same at the end: digests of results, taken by ourselves.

The journal records digests of its own; these are computed anew from the recorded text, so a text that
changed under an unchanged digest is seen too. Rows are read once each, since a full pass over a batch
is 100 MB, and compared with one full pass at the end.
"""

from datetime import datetime

from models import database

Results = dict[tuple[str, str], str]

_STEPS = """
SELECT s.run_id, s.step_key, s.state || ':' || coalesce(s.output_digest, '') || ':' ||
       md5(coalesce(s.output, '')), s.finished_at
FROM step s JOIN run r USING (run_id)
WHERE r.batch_id = %(batch_id)s
  AND s.finished_at > coalesce(%(after)s::timestamptz, '-infinity') - interval '10 seconds'"""

_RUNS = """
SELECT run_id, state || ':' || result_key FROM run
WHERE batch_id = %(batch_id)s AND state = 'completed'"""


class Keepsake:
    """Every result of a batch seen before some fault."""

    def __init__(self, batch_id: str) -> None:
        self._batch_id = batch_id
        self._results: Results = {}
        self._until: datetime | None = None

    def __len__(self) -> int:
        return len(self._results)

    def take(self) -> None:
        """Remember everything that is finished now and was not before."""
        found, until = _read(self._batch_id, after=self._until)
        self._until = until or self._until
        for key, value in found.items():
            self._results.setdefault(key, value)

    def changed(self) -> int:
        """How many of the remembered results are gone or different now."""
        return differences(self._results, _read(self._batch_id, after=None)[0])


def differences(before: Results, after: Results) -> int:
    """Entries of ``before`` that ``after`` lacks or has otherwise."""
    return sum(after.get(key) != value for key, value in before.items())


def _read(batch_id: str, *, after: datetime | None) -> tuple[Results, datetime | None]:
    rows = database.fetch(_STEPS, {"batch_id": batch_id, "after": after})
    results: Results = {(run_id, step_key): value for run_id, step_key, value, _ in rows}
    for run_id, value in database.fetch(_RUNS, {"batch_id": batch_id}):
        results[run_id, ""] = value  # no step has an empty key
    return results, max((row[3] for row in rows), default=None)
