"""Is every package found under one of our names ours?

Our top-level names are common words, and both ``PYTHONPATH`` and Celery put other directories first. Asked
before anything of ours is imported, so only the standard library is used here.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

NAMES = ("models", "tasks", "recovery", "ops")
ROOT = Path(__file__).resolve().parents[1]


def shadowed_here() -> str | None:
    """A sentence when this process would import something else under one of our names."""
    for name in NAMES:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found is None or found.parent != ROOT / name:
            return _sentence(name, found)
    return None


def shadowed_in(directory: Path) -> str | None:
    """A sentence when a worker started in ``directory``, which Celery puts first, would."""
    if directory.resolve() == ROOT:
        return None
    for name in NAMES:
        for found in _candidates(directory, name):
            if found.exists():
                return _sentence(name, found)
    return None


def _candidates(directory: Path, name: str) -> Iterator[Path]:
    """A directory without ``__init__.py`` yields to a package found later, so it is no danger."""
    yield directory / f"{name}.py"
    yield directory / name / "__init__.py"


def _sentence(name: str, found: Path | None) -> str:
    return (
        f"`import {name}` finds {found or 'nothing'} instead of Onward's {ROOT / name}: rename that file, "
        "or start from another directory."
    )
