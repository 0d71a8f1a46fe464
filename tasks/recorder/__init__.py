"""Requests of a step that are sent once and answered from the journal afterwards: model calls and other reads.

What belongs here: who may be asked without a tool (``guard``, ``declared``), which request of a step is which
(``scopes``, ``digests``), what an answer says about itself (``dialects``), and the exchange itself
(``recorder``), under the transports of HTTP libraries (``transports``). What does not: what to ask, and what to
make of an answer (``tasks.llm``); money and the records' SQL (``models.journal``).
"""

from typing import TYPE_CHECKING, Any

from tasks.recorder.options import CallOptions, Freshness, Told, asking

if TYPE_CHECKING:
    from tasks.recorder.recorder import Recorder

__all__ = ["CallOptions", "Freshness", "Told", "asking", "of"]


def of(ctx: Any) -> "Recorder | None":
    """The recorder behind a step's context; None in a test without one."""
    http: Any = (
        ctx._http
    )  # by what it does: the recorder's module needs a database, and agents' tests none
    return http if hasattr(http, "exchange") else None
