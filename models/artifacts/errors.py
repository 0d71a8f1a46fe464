"""What can be wrong with content that is kept outside the journal."""

from models.errors import OnwardError


class Withheld(OnwardError):
    """A step cannot go on until a person has seen to what it needs. Nothing is lost, and nothing is counted."""


class ArtifactChanged(Withheld):
    """What is stored is not what was recorded: other bytes, fewer, or none."""

    error_type = "artifact_changed"

    def __init__(
        self,
        digest: str,
        *,
        size: int | None,
        actual: str | None,
        actual_size: int = 0,
        where: str,
        name: str = "",
    ) -> None:
        called = f"artifact {name!r}" if name else "artifact"
        found = f"{actual} ({actual_size:,} bytes)" if actual else "nothing"
        wanted = digest if size is None else f"{digest} ({size:,} bytes)"
        super().__init__(
            f"{called} is not what was recorded: expected {wanted}, found {found} at {where}. Nothing was made of "
            f"it and nothing is made anew in its place: put the recorded content back (all processes must see the "
            f"same ONWARD_ARTIFACTS), then `onward runs resume` goes on"
        )
        self.digest = digest
        self.size = size
        self.actual = actual
        self.actual_size = actual_size
        self.where = where


class ArtifactUnavailable(OnwardError):
    """The store does not answer, or refuses: nothing is known about what it holds."""

    error_type = "artifact_store_unavailable"

    def __init__(self, where: str, problem: object) -> None:
        super().__init__(
            f"the artifact store at {where} (ONWARD_ARTIFACTS) cannot be used: {problem}"
        )


class ArtifactTooLarge(OnwardError):
    """More than one artifact may hold."""

    error_type = "output_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the content takes more than {limit:,} bytes, which is what one artifact may hold; nothing of it "
            f"was kept. Split it, or raise ONWARD_ARTIFACT_LIMIT"
        )


class EncryptionProblem(Withheld):
    """Something is to be encrypted or read, and the key for it is not here."""

    error_type = "encryption_key"
