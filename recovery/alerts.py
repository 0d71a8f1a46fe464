"""Telling somebody: newly blocked runs and a sweep that stands still, by a command or a webhook.

Delivered at least once: the place of the last block told moves on after its delivery, so an alert that
could not be delivered is tried again by the next pass. ``event_id`` tells a repeated one.
"""

import http.client
import json
import logging
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping

from models.journal import alerts
from models.redaction import redact
from models.settings import settings
from recovery import watch

_log = logging.getLogger("onward.alerts")
_AT_ONCE = 100  #: alerts of one pass; a flood is told over several


class AlertFailed(Exception):
    """An alert could not be delivered; the words say why."""


class StaleSweep:
    """Tells of a sweep that stands still once, and again only after it has moved."""

    def __init__(self) -> None:
        self._told = False

    def look(self) -> bool:
        """Whether an alert went out now."""
        healthy, sentence = watch.sweep_health()
        if healthy:
            self._told = False
        if healthy or self._told or not configured():
            return False
        self._told = _delivered({"kind": "sweep_stale", "detail": sentence})
        return self._told


def configured() -> bool:
    """Whether anybody wants to be told."""
    return bool(settings().alert_command or settings().alert_webhook)


def tell_blocked() -> int:
    """Tell of every run blocked since the last time; returns how many alerts went out."""
    if not configured():
        return 0
    alerts.begin()
    told = 0
    for block in alerts.untold(limit=_AT_ONCE):
        if not _delivered(
            {
                "kind": "run_blocked", "event_id": block.event_id, "run_id": block.run_id,
                "workflow": block.workflow, "step_key": block.step_key, "detail": block.detail,
                "at": block.at.isoformat(),
            }
        ):  # fmt: skip
            break
        alerts.told(block.event_id)
        told += 1
    return told


def _delivered(alert: Mapping[str, object]) -> bool:
    try:
        deliver(alert)
    except AlertFailed as error:
        _log.warning("An alert could not be delivered, the next pass tries again: %s", error)
        return False
    return True


def deliver(alert: Mapping[str, object]) -> None:
    """Hand one alert to everything that is configured. Raises ``AlertFailed``."""
    text = redact(json.dumps(alert))
    if settings().alert_command:
        _run(_argv(settings().alert_command), text)
    if settings().alert_webhook:
        _post(settings().alert_webhook, text)


def _argv(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise AlertFailed(f"ONWARD_ALERT_COMMAND={command!r}: {error}") from error
    if not argv:
        raise AlertFailed(f"ONWARD_ALERT_COMMAND={command!r} names no command")
    return argv


def _run(argv: list[str], text: str) -> None:
    try:
        done = subprocess.run(
            argv, input=text, encoding="utf-8", errors="replace", capture_output=True,
            timeout=settings().alert_timeout, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise AlertFailed(f"ONWARD_ALERT_COMMAND {argv[0]!r}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        raise AlertFailed(f"ONWARD_ALERT_COMMAND {argv[0]!r} ended with {done.returncode}: {last}")


def _post(url: str, text: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise AlertFailed(f"ONWARD_ALERT_WEBHOOK={url!r} is neither http:// nor https://")
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        url, data=text.encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=settings().alert_timeout):  # noqa: S310
            pass
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise AlertFailed(f"ONWARD_ALERT_WEBHOOK: {error}") from error
