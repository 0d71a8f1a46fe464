"""Model endpoints: base URLs that requests may be POSTed to without a tool, and how fast."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from models.settings import settings
from tasks.errors import DefinitionError

_CLIMBS = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One model endpoint. Its limits hold over the whole cluster."""

    url: str
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_output: int | None = None  #: tokens of an answer whose request sets no limit

    @property
    def is_limited(self) -> bool:
        return self.requests_per_minute is not None or self.tokens_per_minute is not None


_declared: dict[str, Endpoint] = {}


def declare_endpoint(
    url: str,
    *,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    max_output: int | None = None,
) -> Endpoint:
    """Say, where an agent's module is loaded, that this base URL belongs to a model service.

    Requests of the known kinds (chat completions, responses, embeddings, messages) may then be sent to it from
    a step, and are recorded. ``requests_per_minute``, ``tokens_per_minute``: no more than that from all
    workers together. ``max_output``: how long an answer can be when its request does not say, for budgets.
    """
    for name, limit in (
        ("requests_per_minute", requests_per_minute),
        ("tokens_per_minute", tokens_per_minute),
        ("max_output", max_output),
    ):
        if limit is not None and not 0 < limit < float("inf"):
            raise DefinitionError(f"declare_endpoint({url!r}): {name}={limit!r} must be above 0")
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.query or parts.username:
        raise DefinitionError(
            f"declare_endpoint takes a base URL without user or query, such as https://api.openai.com/v1, not {url!r}"
        )
    endpoint = Endpoint(
        url=normalised(url), requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute, max_output=max_output,
    )  # fmt: skip
    _declared[endpoint.url] = endpoint
    return endpoint


def endpoint_of(url: str) -> Endpoint | None:
    """The declared endpoint that a URL lies under; of several the narrowest."""
    asked = normalised(url)
    if _CLIMBS.search(asked):
        return None  # whoever resolves it ends somewhere else
    bases = {normalised(base): Endpoint(url=normalised(base)) for base in settings().model_urls}
    under = [base for base in {**bases, **_declared} if (asked + "/").startswith(base + "/")]
    return {**bases, **_declared}[max(under, key=len)] if under else None


def normalised(url: str) -> str:
    """Scheme, host and port as they are compared, and the path without its last slash; no query, no user."""
    return origin(url) + urlsplit(url).path.rstrip("/")


def origin(url: str) -> str:
    """``https://host``, with the port where it is not the scheme's own."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"
