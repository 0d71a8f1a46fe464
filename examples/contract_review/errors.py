"""What can go wrong with one review; each message says what, to which document, what to do next."""

from tasks import Refused


class ReviewError(Exception):
    """The review of one document cannot go on; other documents are not concerned."""


class UnreadableDocument(ReviewError):
    """A document gives no text. Its reason and advice are for whoever submitted it."""

    def __init__(self, name: str, reason: str, advice: str) -> None:
        super().__init__(
            name, reason, advice
        )  # all three: exceptions travel between processes by their args
        self.name, self.reason, self.advice = name, reason, advice

    def __str__(self) -> str:
        return f"cannot read {self.name}: {self.reason}. {self.advice}"


class ConclusionRefused(ReviewError):
    """The answers do not fit together or do not fit the document. Nothing was filed."""


class RegistryUnavailable(ReviewError):
    """The registry did not confirm a filing, which leaves open whether it happened."""


class RegistryRefused(ReviewError, Refused):
    """The registry answered with a refusal; the same filing will be refused again."""
