"""What a step may send without a tool: what only reads, and what asks a declared model endpoint."""

import re
from dataclasses import dataclass
from typing import Literal

from tasks.errors import UndeclaredEffect
from tasks.recorder import dialects
from tasks.recorder.declared import Endpoint, endpoint_of, normalised, origin
from tasks.recorder.dialects import Dialect
from tasks.recorder.values import Outgoing

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: POSTed because of their size; they make and change nothing.
_COUNTING = re.compile(r"/(messages/count_tokens|responses/input_tokens)$")
#: By these a request says that it is another than its method: services and frameworks act on what they say.
_OVERRIDES = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})
_POLLED = re.compile(r"/responses/[^/]+$")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may be sent, and what it is."""

    kind: Literal["model", "read", "untracked"]
    endpoint: Endpoint
    dialect: Dialect | None = None  #: how an answer is read; None: its status is all there is
    polls: bool = False  #: asks for an answer that is being made

    @property
    def name(self) -> str:
        return self.dialect.name if self.dialect else "http"


def admit(request: Outgoing, *, untracked: bool, step: str) -> Admitted:
    """What kind of request this is. Raises ``UndeclaredEffect`` for one that belongs in a tool."""
    method, url = _method(request), normalised(request.url)
    endpoint = endpoint_of(request.url)
    if method in _READING:
        polls = endpoint is not None and _POLLED.search(url) is not None and method == "GET"
        dialect = dialects.RESPONSES if polls else None
        return Admitted("read", endpoint or Endpoint(url=origin(url)), dialect, polls)
    if endpoint is not None and method == "POST":
        if (dialect := dialects.of_path(url)) is not None:
            return Admitted("model", endpoint, dialect)
        if _COUNTING.search(url):
            return Admitted("read", endpoint)
    if untracked:
        return Admitted("untracked", endpoint or Endpoint(url=origin(url)))
    raise UndeclaredEffect(_refusal(method, url, endpoint, step))


def _method(request: Outgoing) -> str:
    """What the request is to whoever acts on it."""
    for field, value in request.headers:
        if field.lower() in _OVERRIDES:
            return value.strip().upper()
        if field.lower() == "upgrade":
            return f"UPGRADE {value.strip().upper()}"  # what goes over it afterwards nobody sees
    return request.method.upper()


def _refusal(method: str, url: str, endpoint: Endpoint | None, step: str) -> str:
    said = f"Step {step!r} was about to send {method} {url}, and nothing was sent: "
    if endpoint is not None:
        return said + (
            f"{endpoint.url} is declared as a model endpoint, and there only requests for answers (chat/completions, "
            f"responses, embeddings, messages) are model calls. This one changes something: make it a Tool and send "
            f"it by ctx.call(tool, request)."
        )
    return said + (
        "outside a tool a step may only read (GET, HEAD, OPTIONS) or ask a declared model endpoint, since whatever "
        "else it sends would be sent again after a crash. If this changes something, make it a Tool (class "
        "Post(Tool[Request, Result]): name, effect, execute) and send it by ctx.call(Post(), request). If it asks a "
        f"model, declare the endpoint: tasks.llm.declare_endpoint({origin(url)!r}), or ONWARD_MODEL_ENDPOINTS. If the "
        "step is to do I/O that Onward does not see, mark it @step(untracked=True): a crash then stops it for a person."
    )
