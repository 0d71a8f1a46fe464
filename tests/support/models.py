"""The language models of these tests: the scripted service that ships with the product."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.testing.outside.models import Answer, Billed, ModelCall, ModelService, Ways

__all__ = ["Answer", "Billed", "ModelCall", "ModelService", "Ways", "models_service"]


@contextmanager
def models_service(directory: Path) -> Iterator[ModelService]:
    """Models of a test's own, with their ledger under this directory."""
    with ModelService(directory / "models") as service:
        yield service
