"""The code of docs/llm.md is code that runs."""

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "llm.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
IMPORTS = """
import sqlite3
from datetime import timedelta
from pydantic import BaseModel
from tasks import Context, Effect, Freshness, Then, Tool, step
from tests.agents.ledgered import Place as FileReport
TOOLS, CLAUSES, REGISTRY = [FileReport()], [], ":memory:"
"""


@pytest.mark.unit
def test_the_examples_run() -> None:
    names: dict[str, Any] = {}
    exec(IMPORTS + "".join(BLOCKS), names)  # noqa: S102 - our own document
    names["test_assess"]()
