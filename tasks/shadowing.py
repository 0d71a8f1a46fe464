"""Our top-level names are common words: refuse to run when another package answers to one of them."""

import importlib.util
from pathlib import Path

from models.errors import OnwardError

_OURS = ("tasks", "models", "recovery", "ops")


class ShadowedPackage(OnwardError):
    """Another module is imported under one of our names."""


def check() -> None:
    """Celery puts the current directory first on the import path, where a user's ``models.py`` may lie."""
    home = Path(__file__).resolve().parent.parent
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found is None or found.parent != home / name:
            raise ShadowedPackage(
                f"`import {name}` finds {found}, not Onward's {home / name}. Rename that file or start from "
                f"another directory."
            )
