"""A fake external service for tests: a real HTTP process whose ledger counts what was really done.

    with Outside(directory) as outside:
        outside.fault("invoice-7", "drop_response")  # applied, and the connection cut
        ...                                          # run the agent against outside.url
        assert outside.effects("invoice-7") == 1

Every request is about one *name*, the business intent that the test counts by:

``POST /idempotent/NAME``        makes a resource, at most one per ``Idempotency-Key`` while the key is kept
``POST /plain/NAME``             makes a resource each time it is asked, whatever the key
``POST /llm/NAME``               answers as a language model would, with other words each time
``GET /resources?...``           looks up by ``key``, ``name`` or any field of the body, in pages
``GET /resources/ID``            one resource, or 404
``DELETE /resources/ID``         undoes it; 404 when it is gone already
``POST /resources/ID/cancel``    undoes it and leaves it visible; 409 when that was done already

Faults, holds and settings are ordered under ``/admin`` (see ``client``); ``python -m ops.testing.outside
--help`` starts it by hand.
"""

from ops.testing.outside.client import Outside

__all__ = ["Outside"]
