"""Placeholders of secrets become their values right before a request leaves, and nowhere else."""

import json
from dataclasses import replace

from models.secret import MARK
from tasks.recorder.values import Outgoing
from tasks.secrets import fill, fill_header


def filled(request: Outgoing) -> Outgoing:
    """The request as it is sent. Raises ``SecretMissing``, ``SecretRefused``."""
    headers = tuple((name, fill_header(name, value)) for name, value in request.headers)
    return replace(
        request, url=fill(request.url, within="url"), headers=headers, body=_body(request.body)
    )


def _body(body: bytes) -> bytes:
    if MARK.encode("ascii") not in body:
        return body
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return body
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return fill(text).encode("utf-8")
    return fill(text, within="json").encode("utf-8")
