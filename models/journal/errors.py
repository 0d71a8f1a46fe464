"""What the journal refuses, in sentences a person can act on."""

from models.errors import OnwardError


class JournalError(OnwardError):
    """The journal refused or could not answer."""


class JournalUnavailable(JournalError):
    """Postgres could not be reached. Nothing was lost: what was recorded stays recorded."""


class CommitUnknown(JournalUnavailable):
    """The connection broke while a statement was under way: it may or may not have committed."""


class RolledBack(JournalError):
    """Postgres undid a transaction that met another one. It may be repeated as a whole."""


class LeaseLost(JournalError):
    """This attempt no longer owns the step: its lease ended and was taken, or a person intervened."""


class SubmissionConflict(JournalError):
    """The submission key was used before with another input. Nothing was submitted."""


class UnknownRun(JournalError):
    """There is no run of this id."""


class Refused(JournalError):
    """The run is in a state in which this makes no sense; the message says which and what to do."""
