"""What ends a call of ``ctx.llm``: each is final, since trying again would end the same way."""

from models.messages import one_line, safe_repr
from tasks.errors import FinalError


class SchemaInvalid(FinalError):
    """The model was asked as often as it may be, and no answer fitted the schema or passed the check."""

    error_type = "schema_invalid"

    def __init__(self, what: str, *, asks: int, reason: str, answer: str) -> None:
        super().__init__(
            f"The model was asked {asks} times for {what}, and no answer was accepted; the last one: "
            f"{one_line(reason)}. It begins {safe_repr(answer, limit=120)}. Nothing after this step saw any of "
            f"them. Correct the prompt, the schema or the check, or raise max_asks; then `onward runs retry`."
        )
        self.asks, self.reason = asks, reason


class TurnsExhausted(FinalError):
    """A conversation with tools came to no answer within ``max_turns``."""

    error_type = "turns_exhausted"


class TranscriptIllegal(FinalError):
    """A conversation that no provider would take: a tool call in it has no result, or two."""

    error_type = "transcript_illegal"


class NotConfigured(FinalError):
    """``ctx.llm`` does not know whom to ask, or lacks the SDK to ask with."""

    error_type = "llm_not_configured"
