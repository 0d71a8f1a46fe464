"""What ``result`` raises when a run has none: how it ended, or what it waits for."""

from models.errors import OnwardError


class RunFailed(OnwardError):
    """The run ended in a failure; its completed steps are kept and can be built upon."""

    error_type = "run_failed"


class RunCancelled(OnwardError):
    """A person cancelled the run."""

    error_type = "run_cancelled"


class RunBlocked(OnwardError):
    """The run stands still until somebody removes the cause that the message names."""

    error_type = "run_blocked"


class RunUnfinished(OnwardError, TimeoutError):
    """The run has no result yet; the message says what it is waiting for."""

    error_type = "run_unfinished"
