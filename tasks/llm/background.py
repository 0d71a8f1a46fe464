"""Answers that take minutes or hours: made by the provider in the background, fetched by their id.

The id is on record before anything else happens, so a crash asks for nothing twice. Between two looks the step
is parked: it holds no worker, no lease and no connection.
"""

from tasks.errors import AnswerIncomplete
from tasks.llm.asking import Accept, Begin, Forgotten, Logic, Park, Poll, Reject
from tasks.llm.responses import UNFINISHED
from tasks.llm.values import Question, Reply


def awaited(question: Question, *, poll_every: float) -> Logic[Reply]:
    """The finished answer. Each attempt looks once, and parks while there is none."""
    begun: Reply = yield Begin(question)
    if begun.taken.verdict == "rejected":
        raise _dropped(begun)
    reply = begun
    if begun.status in UNFINISHED and not begun.taken.replayed:
        yield Park(poll_every, _why(begun))
    while reply.status in UNFINISHED:
        try:
            reply = yield Poll(question, begun.response_id)
        except Forgotten:
            yield Reject(begun, "the provider does not know it any more")
            raise _dropped(begun) from None
        if reply.status in UNFINISHED:
            yield Park(poll_every, _why(reply))
    yield Accept(begun)
    return reply


def _dropped(begun: Reply) -> AnswerIncomplete:
    return AnswerIncomplete(
        f"The provider has dropped answer {begun.response_id} before it was fetched; it may be billed all "
        f"the same. Look for it more often (poll_every), or raise max_asks.",
        state="cut",
        counts=begun.taken.counts,
    )


def _why(reply: Reply) -> str:
    return (
        f"answer {reply.response_id} of {reply.model or 'the model'} is being made ({reply.status})"
    )
