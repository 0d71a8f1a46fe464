"""Our top-level names are common words: refuse to run when another module answers to one of them.

Celery puts the current directory first on the import path, where a user's ``models.py`` may lie. Imported
before anything else of ours, so that the refusal comes and not the import error that would follow; only
the standard library is used here.
"""

import importlib.util
from pathlib import Path

_OURS = ("tasks", "models", "recovery", "ops")


def check() -> None:
    """Raise ImportError, with both paths, when an import of one of our names would find something else."""
    home = Path(__file__).resolve().parent.parent
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found is None or found.parent != home / name:
            raise ImportError(
                f"`import {name}` finds {found}, not Onward's {home / name}. Rename that file or start from "
                f"another directory."
            )


check()
