"""The recorder under HTTP libraries: transports of httpx2, and of httpx where that is installed.

A transport lies below clients, SDKs' retries and redirects, so whatever takes an HTTP client is recorded. An
answer is read to its end before it is handed on, since half an answer is none; a stream is handed on as one.
"""

import importlib
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from models.settings import settings
from tasks.certificates import tls_context
from tasks.recorder.options import EXTENSION, CallOptions, current
from tasks.recorder.values import Arrived, Incoming, NoAnswer, Outgoing, Send

if TYPE_CHECKING:
    from tasks.recorder.recorder import Recorder

_CONNECT = 10.0  #: seconds
_OWN_OPTIONS = ("freshness", "max_age", "max_asks", "accept_length", "pin")
#: Errors after which a request has certainly not been worked on.
_NEVER_LEFT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")
#: Errors of whoever made the request.
_OF_CALLER = ("UnsupportedProtocol", "LocalProtocolError")


def client(recorder: "Recorder", options: dict[str, Any]) -> Any:
    """An ``httpx2.Client`` whose transports, those of proxies included, go through the recorder."""
    return _client(recorder, options, "Client", async_=False)


def async_client(recorder: "Recorder", options: dict[str, Any]) -> Any:
    """An ``httpx2.AsyncClient``, likewise."""
    return _client(recorder, options, "AsyncClient", async_=True)


def transport(recorder: "Recorder", *, async_: bool, library: str) -> Any:
    """A transport for a client of the caller's own."""
    module = importlib.import_module(library)
    kind = module.AsyncHTTPTransport if async_ else module.HTTPTransport
    inner = kind(verify=tls_context(library))
    return _wrapped(library, recorder, inner, options=CallOptions(), async_=async_)


def _client(recorder: "Recorder", given: dict[str, Any], kind: str, *, async_: bool) -> Any:
    own = CallOptions(**{name: given[name] for name in _OWN_OPTIONS if name in given})
    options = {name: value for name, value in given.items() if name not in _OWN_OPTIONS}
    module = importlib.import_module("httpx2")
    options.setdefault("timeout", module.Timeout(settings().llm_timeout, connect=_CONNECT))
    if not options.keys() & {"verify", "cert", "transport", "trust_env"}:
        options["verify"] = tls_context()
    made = getattr(module, kind)(**options)
    # The client has chosen its transports by its own rules: certificates, proxies, mounts.
    made._transport = _wrapped("httpx2", recorder, made._transport, options=own, async_=async_)
    made._mounts = {
        pattern: inner and _wrapped("httpx2", recorder, inner, options=own, async_=async_)
        for pattern, inner in made._mounts.items()
    }
    return made


def _wrapped(
    library: str, recorder: "Recorder", inner: Any, *, options: CallOptions, async_: bool
) -> Any:
    return _kind(library, async_=async_)(recorder, inner, options)


@lru_cache(maxsize=4)
def _kind(library: str, *, async_: bool) -> Any:
    """A transport of one library: its clients look at what a transport derives from."""
    module: Any = importlib.import_module(library)
    return _async_kind(module) if async_ else _sync_kind(module)


def _sync_kind(module: Any) -> Any:
    class Recorded(module.BaseTransport):  # type: ignore[misc] # known at run time only
        def __init__(self, recorder: "Recorder", inner: Any, options: CallOptions) -> None:
            self._recorder, self._inner, self._options = recorder, inner, options

        def handle_request(self, request: Any) -> Any:
            incoming = self._recorder.exchange(
                _outgoing(request, request.read()),
                lambda order: _Sending(module, request, order).send(self._inner),
                options=_options(request, self._options),
            )
            return _response(module, request, incoming)

        def close(self) -> None:
            self._inner.close()

    return Recorded


def _async_kind(module: Any) -> Any:
    class AsyncRecorded(module.AsyncBaseTransport):  # type: ignore[misc] # known at run time only
        def __init__(self, recorder: "Recorder", inner: Any, options: CallOptions) -> None:
            self._recorder, self._inner, self._options = recorder, inner, options
            self._in_flight, self._closes = 0, False

        async def handle_async_request(self, request: Any) -> Any:
            incoming = await self._recorder.aexchange(
                _outgoing(request, await request.aread()),
                lambda order: self._send(_Sending(module, request, order)),
                options=_options(request, self._options),
            )
            return _response(module, request, incoming)

        async def _send(self, sending: "_Sending") -> Arrived:
            self._in_flight += 1
            try:
                return await sending.asend(self._inner)
            finally:
                self._in_flight -= 1
                if self._closes and not self._in_flight:
                    await self._inner.aclose()

        async def aclose(self) -> None:
            if self._in_flight and self._recorder.air.keeps():
                self._closes = True  # the last one closes: its answer is paid for
            else:
                await self._inner.aclose()

    return AsyncRecorded


def _outgoing(request: Any, body: bytes) -> Outgoing:
    headers = tuple((str(name), str(value)) for name, value in request.headers.multi_items())
    return Outgoing(method=request.method, url=str(request.url), headers=headers, body=body)


def _options(request: Any, of_client: CallOptions) -> CallOptions:
    given = request.extensions.get(EXTENSION)
    if isinstance(given, CallOptions):
        return given
    asked = current()
    return asked[0] if asked is not None else of_client


def _response(module: Any, request: Any, incoming: Incoming) -> Any:
    if (asked := current()) is not None:
        asked[1].incoming = incoming
    return module.Response(
        incoming.status, headers=list(incoming.headers), content=incoming.body, request=request,
        extensions={EXTENSION: incoming},
    )  # fmt: skip


class _Sending:
    """One real request of a library, with a time-out, read to its end."""

    def __init__(self, module: Any, request: Any, order: Send) -> None:
        self._module, self._order = module, order
        limits = dict(request.extensions.get("timeout") or {})
        longest = settings().llm_timeout
        for phase in ("read", "write", "pool"):
            limits[phase] = min(limits.get(phase) or longest, longest)
        limits["connect"] = min(limits.get("connect") or _CONNECT, longest)
        kept = {
            name: value
            for name, value in request.extensions.items()
            if name not in (EXTENSION, "timeout")
        }
        out = order.request
        headers = [
            (name, value)
            for name, value in out.headers
            if name.lower() not in ("content-length", "transfer-encoding")
        ]
        try:
            self._request = module.Request(
                out.method, out.url, headers=headers, content=out.body or None,
                extensions={**kept, "timeout": limits},
            )  # fmt: skip
        except (ValueError, TypeError, module.InvalidURL) as error:
            raise NoAnswer(error, has_left=False, of_caller=True) from error
        self._ends = time.monotonic() + max(longest, limits["read"])
        self._chunks: list[bytes] = []

    def send(self, inner: Any) -> Arrived:
        try:
            response = inner.handle_request(self._request)
        except self._module.TransportError as error:
            raise self._no_answer(error) from error
        broken: Exception | None = None
        try:
            for chunk in response.iter_bytes():
                self._take(chunk)
        except (self._module.TransportError, self._module.DecodingError) as error:
            broken = error
        finally:
            response.close()
        return self._arrived(response, broken)

    async def asend(self, inner: Any) -> Arrived:
        try:
            response = await inner.handle_async_request(self._request)
        except self._module.TransportError as error:
            raise self._no_answer(error) from error
        broken: Exception | None = None
        try:
            async for chunk in response.aiter_bytes():
                self._take(chunk)
        except (self._module.TransportError, self._module.DecodingError) as error:
            broken = error
        finally:
            await response.aclose()
        return self._arrived(response, broken)

    def _take(self, chunk: bytes) -> None:
        if time.monotonic() > self._ends:  # a trickle never meets a time-out between two chunks
            raise self._module.ReadTimeout("the answer takes too long", request=self._request)
        self._chunks.append(chunk)
        if self._order.on_chunk is not None:
            self._order.on_chunk(chunk)

    def _no_answer(self, error: Exception) -> NoAnswer:
        kind = type(error).__name__
        of_caller = kind in _OF_CALLER
        return NoAnswer(
            error, has_left=not of_caller and kind not in _NEVER_LEFT, of_caller=of_caller
        )

    def _arrived(self, response: Any, broken: Exception | None) -> Arrived:
        headers = tuple((str(name), str(value)) for name, value in response.headers.multi_items())
        return Arrived(
            status=response.status_code, headers=headers, body=b"".join(self._chunks), broken=broken
        )
