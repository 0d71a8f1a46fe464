"""httpx's transports as the recorder sees them: the layer below clients, retries of SDKs and redirects."""

import asyncio
import importlib
import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ops.testing.certify.faults import FaultKind
from ops.testing.certify.passing import INJECTED, Passing, Twist
from ops.testing.certify.wire import Wire

_LIBRARIES = ("httpx2", "httpx")


def install(wire: Wire) -> None:
    """Wrap the transports of whichever of the two is installed."""
    for name in _LIBRARIES:
        if importlib.util.find_spec(name) is not None:
            library = importlib.import_module(name)
            _wrap(library, wire)
            _wrap_async(library, wire)


def _wrap(library: Any, wire: Wire) -> None:
    original = library.HTTPTransport.handle_request

    def handle_request(self: Any, request: Any) -> Any:
        passing = _begin(wire, request)
        with wire.within():
            if passing is None:
                return original(self, request)
            passing.sent()
            with _failing(passing):
                response = original(self, request)
        twist = _answered(passing, request, response)
        if twist is None:
            return response
        if twist.wait:
            time.sleep(twist.wait)
            return response
        response.close()
        return _instead(library, request, twist)

    library.HTTPTransport.handle_request = handle_request


def _wrap_async(library: Any, wire: Wire) -> None:
    original = library.AsyncHTTPTransport.handle_async_request

    async def handle_async_request(self: Any, request: Any) -> Any:
        passing = _begin(wire, request)
        with wire.within():
            if passing is None:
                return await original(self, request)
            passing.sent()
            with _failing(passing):
                response = await original(self, request)
        twist = _answered(passing, request, response)
        if twist is None:
            return response
        if twist.wait:
            await asyncio.sleep(twist.wait)
            return response
        await response.aclose()
        return _instead(library, request, twist)

    library.AsyncHTTPTransport.handle_async_request = handle_async_request


def _begin(wire: Wire, request: Any) -> Passing | None:
    return wire.begin(request.method, str(request.url), dict(request.headers))


@contextmanager
def _failing(passing: Passing) -> Iterator[None]:
    """What the real transport raises is the end of the request as well."""
    try:
        yield
    except BaseException:
        passing.failed()
        raise


def _answered(passing: Passing, request: Any, response: Any) -> Twist | None:
    timeout = request.extensions.get("timeout", {}).get("read")
    return passing.answered(response.status_code, body=_body(request), timeout=timeout)


def _body(request: Any) -> bytes:
    body = getattr(request, "_content", None)  # a stream that was sent cannot be read again
    return body if isinstance(body, bytes) else b""


def _instead(library: Any, request: Any, twist: Twist) -> Any:
    if twist.kind is FaultKind.DROP:
        raise library.RemoteProtocolError(
            "Server disconnected without sending a response.", request=request
        )
    if twist.timed_out:
        raise library.ReadTimeout("timed out", request=request)
    return library.Response(500, json=INJECTED, request=request)
