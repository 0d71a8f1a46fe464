"""The examples in ``docs/adapters.md`` are those that ``make adapters`` runs."""

import re

import pytest

from tests.architecture.source import ROOT

DOCUMENT = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
EXAMPLES = {
    path.stem: path.read_text(encoding="utf-8").splitlines()
    for path in sorted((ROOT / "examples" / "adapters").glob("*.py"))
    if path.stem not in ("__init__", "desk")
}


def is_from(block: str, example: list[str]) -> bool:
    """Whether all lines of the block are in the example, in this order."""
    lines = iter(example)
    return all(line in lines for line in block.splitlines() if line)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_shown(name: str) -> None:
    assert [block for block in BLOCKS if is_from(block, EXAMPLES[name])], "as it is run"


def test_nothing_else_is_shown() -> None:
    assert len(BLOCKS) == len(EXAMPLES)
