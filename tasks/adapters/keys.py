"""The keys of providers: named here, looked up when a request leaves, so that a replay needs none."""

from typing import Any

from models.errors import OnwardError
from models.secret import Secret, unmarked

_OURS = {
    "http_client": "calls are recorded by the one of ctx. What a proxy or a certificate needs goes into the "
    "environment (HTTPS_PROXY, SSL_CERT_FILE)",
    "max_retries": "a request is sent again by Onward, when its endpoint may be asked, and never by the SDK",
}


def client_options(given: dict[str, Any], *, secret: str, http_client: Any) -> dict[str, Any]:
    """The options of an SDK's client: the caller's, a key by the name of a secret, and what is ours to say.

    ``api_key`` may be a ``Secret``, a text with ``{{secret:NAME}}``, or whatever else the SDK takes.
    """
    refuse_ours(given)
    key = given.get("api_key") or Secret(secret)
    return {**given, "api_key": declared(key), "http_client": http_client, "max_retries": 0}


def declared(key: Any) -> Any:
    """A key as an SDK takes it. It is filled in where it stands in a header for credentials, and nowhere else."""
    if isinstance(key, Secret):
        return key.placeholder
    return unmarked(key) if isinstance(key, str) else key


def refuse_ours(given: dict[str, Any]) -> None:
    """Say so when a caller sets what an adapter must set: dropped in silence, it would be missed one day."""
    for name, why in _OURS.items():
        if given.get(name):
            raise OnwardError(f"{name}= is not the caller's to set inside a step: {why}.")
