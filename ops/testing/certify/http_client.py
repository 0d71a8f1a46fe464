"""``http.client`` as the recorder sees it, and with it ``urllib``, ``urllib3``, ``requests`` and boto3.

They all speak through ``HTTPConnection``; HTTPS differs below it, in the socket. What is wrapped here is
inherited by their own connection classes.
"""

import importlib
import importlib.util
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, RemoteDisconnected
from typing import Any

from ops.testing.certify.faults import FaultKind
from ops.testing.certify.passing import INJECTED, Passing, Twist
from ops.testing.certify.wire import Wire

_BODY = json.dumps(INJECTED).encode()
_REFUSED = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_WRAPPED = ("putrequest", "putheader", "endheaders", "send", "getresponse")


def install(wire: Wire) -> None:
    """Wrap the methods that every request goes through, and those that connect before it."""
    wrapped = _Wrapped(wire)
    for name in _WRAPPED:
        setattr(HTTPConnection, name, _as_method(getattr(wrapped, name)))
    for kind in (HTTPConnection, HTTPSConnection, *_of_urllib3()):
        kind.connect = _connected(kind.connect, wire)


def _of_urllib3() -> tuple[Any, ...]:
    """Its connections connect by methods of their own, before the request is begun."""
    if importlib.util.find_spec("urllib3") is None:
        return ()
    library = importlib.import_module("urllib3.connection")
    return library.HTTPConnection, library.HTTPSConnection


def _connected(connect: Any, wire: Wire) -> Any:
    def within(connection: Any) -> Any:
        with wire.within():
            return connect(connection)

    return within


class _Draft:
    """A request being written: line, headers, then the body in one piece or many."""

    def __init__(self, method: str, url: str) -> None:
        self.method = method
        self.url = url
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.passing: Passing | None = None
        self.takes_body = False  #: the headers are out; what is sent now is body


class _Wrapped:
    """The methods of a connection; the draft of its request is kept on the connection itself."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._original: Any = {name: getattr(HTTPConnection, name) for name in _WRAPPED}

    def putrequest(self, connection: Any, method: str, url: str, *args: Any, **kw: Any) -> None:
        connection._certified = _Draft(method, url)
        self._original["putrequest"](connection, method, url, *args, **kw)

    def putheader(self, connection: Any, header: Any, *values: Any) -> None:
        self._original["putheader"](connection, header, *values)
        if (draft := _draft_of(connection)) is not None:
            draft.headers[_text(header).lower()] = ",".join(map(_text, values))

    def endheaders(self, connection: Any, message_body: Any = None, **kw: Any) -> None:
        """Here the headers leave, and with http.client's own ``request`` the body as well."""
        draft = _draft_of(connection)
        if draft is not None:
            address = _address(connection, draft.url)
            draft.passing = self._wire.begin(draft.method, address, draft.headers)
            if draft.passing is not None:
                draft.passing.sent()
            if isinstance(message_body, bytes | bytearray):
                draft.body.append(bytes(message_body))
        with self._wire.within(), _failing(draft):
            self._original["endheaders"](connection, message_body, **kw)
        if draft is not None:
            draft.takes_body = True

    def send(self, connection: Any, data: Any) -> None:
        draft = _draft_of(connection)
        if draft is not None and draft.takes_body and isinstance(data, bytes | bytearray):
            draft.body.append(bytes(data))
        with _failing(draft):
            self._original["send"](connection, data)

    def getresponse(self, connection: Any) -> HTTPResponse:
        draft = _draft_of(connection)
        with _failing(draft):
            response: HTTPResponse = self._original["getresponse"](connection)
        connection._certified = None
        if draft is None or draft.passing is None:
            return response
        twist = draft.passing.answered(
            response.status, body=b"".join(draft.body), timeout=_timeout(connection)
        )
        return response if twist is None else _twisted(connection, response, twist)


def _as_method(function: Any) -> Any:
    def method(connection: Any, *args: Any, **kwargs: Any) -> Any:
        return function(connection, *args, **kwargs)  # a bound method would not be bound again

    return method


@contextmanager
def _failing(draft: _Draft | None) -> Iterator[None]:
    """What the real transport raises is the end of the request as well."""
    try:
        yield
    except BaseException:
        if draft is not None and draft.passing is not None:
            draft.passing.failed()
        raise


def _draft_of(connection: Any) -> _Draft | None:
    return getattr(connection, "_certified", None)


def _twisted(connection: HTTPConnection, response: HTTPResponse, twist: Twist) -> HTTPResponse:
    if twist.wait:
        time.sleep(twist.wait)
        return response
    response.close()
    connection.close()
    if twist.kind is FaultKind.DROP:
        raise RemoteDisconnected("Remote end closed connection without response")
    if twist.timed_out:
        raise TimeoutError("timed out")
    ours = HTTPResponse(_Tape(), method="POST")  # type: ignore[arg-type]
    ours.begin()
    return ours


class _Tape:
    """What ``HTTPResponse`` reads from when the answer is ours."""

    makefile = staticmethod(lambda *_: io.BytesIO(_REFUSED))


def _timeout(connection: Any) -> float | None:
    timeout = connection.timeout
    if timeout is socket._GLOBAL_DEFAULT_TIMEOUT:  # type: ignore[attr-defined]
        timeout = socket.getdefaulttimeout()
    return float(timeout) if timeout is not None else None


def _address(connection: Any, url: str) -> str:
    """The whole address: behind a proxy the request line has it, else the connection knows its host."""
    if "://" in url:
        return url
    host = connection._tunnel_host or connection.host
    port = connection._tunnel_port if connection._tunnel_host else connection.port
    secure = isinstance(connection, HTTPSConnection) or connection.default_port == 443
    scheme, usual = ("https", 443) if secure else ("http", 80)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}{'' if port in (usual, None) else f':{port}'}{url}"


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
