"""Language models for tests: a real HTTP process, scripted, whose ledger counts what reached it and bills it.

    with ModelService(directory) as models:
        models.script("invoice-7", Answer(status=429, retry_after=2), "paid")
        ...                                          # run the agent against models.url
        assert models.count("invoice-7") == 2
        assert models.billed("invoice-7").calls == 1

``POST /v1/chat/completions``, ``/v1/responses``, ``/v1/embeddings``   as OpenAI's, streamed or not
``GET /v1/responses/ID``                                               a background response
``POST /v1/messages``                                                  as Anthropic's, streamed or not

Without a rule it answers something that fits the schema or the tool that was asked for, with other
values each time. A request whose tool calls have not exactly one result each, or whose turns do not
alternate, is answered 400 and counted as rejected. An answer that was produced is billed, also when the
caller is gone or never gets it.

Orders: ``POST /_script``, ``/_clear``, ``/_ways``, ``/_release``. Counts: ``GET /_calls``, ``/_billed``,
``/_now``, ``/_held``. See ``client`` for both and ``script.Answer`` for the faults; ``python -m
ops.testing.outside.models --help`` starts it by hand.
"""

from ops.testing.outside.models.client import Billed, ModelCall, ModelService
from ops.testing.outside.models.script import Answer, Ways

__all__ = ["Answer", "Billed", "ModelCall", "ModelService", "Ways"]
