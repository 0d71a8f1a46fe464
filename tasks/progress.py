"""``ctx.progress``: shown when it can be, and never a reason for a step to fail."""

import logging
import time

from models.errors import OnwardError
from models.journal import steps
from models.journal.values import Lease
from models.messages import printable, shorten

_log = logging.getLogger("onward.engine")

PERIOD = 1.0  #: seconds between two writes; a loop may report at each of its turns
_MAX_NOTE = 500  #: characters


class Progress:
    """Writes how far one attempt is, at most once a second, and always when it says it is done."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._written_at = -PERIOD

    def __call__(self, done: float, total: float | None, note: str | None) -> None:
        """Take a report from the body, whatever is in it."""
        try:
            shown = float(done), None if total is None else float(total)
            if time.monotonic() - self._written_at < PERIOD and shown[0] != shown[1]:
                return
            self._written_at = time.monotonic()
            text = None if note is None else shorten(printable(str(note)), limit=_MAX_NOTE)
            steps.report_progress(self._lease, shown[0], total=shown[1], note=text)
        except (OnwardError, TypeError, ValueError) as error:
            _log.warning("Progress of step %s not shown: %s", self._lease.step_key, error)
