"""The checkout as these tests see it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("models", "tasks", "recovery", "ops", "examples")
PACKAGES = (*PRODUCT, "benchmarks", "tests")
VERSIONS = ROOT / "models" / "migrations" / "versions"  #: history: never edited, so never judged


def files(*packages: str) -> Iterator[Path]:
    """Every Python file of these packages."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if VERSIONS not in path.parents:
                yield path


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def place(path: Path, node: ast.AST) -> str:
    """``tasks/engine.py:17`` for a message."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def docstrings(module: ast.Module) -> set[ast.Constant]:
    """The constants that are prose."""
    return {
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
