"""House rules that no linter knows. Each failure names the places to change."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture import source
from tests.architecture.source import PACKAGES, PRODUCT, ROOT

FILE_LINES = 400
FUNCTION_LINES = 50

SQL_WRITE = re.compile(
    r"\b(INSERT\s+INTO|UPDATE\s+\w+(\s+\w+)?\s+SET|DELETE\s+FROM|TRUNCATE)\b", re.I
)
CORE_WRITES = {"insert", "update", "delete"}
#: The services of examples and tests keep their own stores: to us they are the outside world. So is the
#: gateway whose ledger is in a table of its own.
WRITERS = (
    ROOT / "models" / "journal", ROOT / "models" / "migrations", ROOT / "examples",
    ROOT / "ops" / "testing" / "outside", ROOT / "tasks" / "toolkit" / "gateway_rows.py",
)  # fmt: skip


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in source.files(*PACKAGES)}
    long = [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > FILE_LINES]
    assert not long, f"more than {FILE_LINES} lines, so a concept is missing: {long}"


def test_the_agents_of_tests_can_be_loaded_together() -> None:
    """One process serves one workflow of a name, and the whole suite is one process."""
    names = [
        f"tests.agents.{path.stem}"
        for path in sorted((ROOT / "tests" / "agents").glob("*.py"))
        if "workflow(" in path.read_text()
    ]
    code = f"from tasks import registry; print(len(registry.load_agents({','.join(names)!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > len(names)


def test_no_function_is_long() -> None:
    long = [
        f"{source.place(path, node)} {node.name}"
        for path in source.files(*PACKAGES)
        for node in ast.walk(source.tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not long, f"more than {FUNCTION_LINES} lines: {long}"


def sql_writes(path: Path) -> Iterator[ast.AST]:
    """Texts that write, and imports of the functions that build such texts."""
    module = source.tree(path)
    prose = source.docstrings(module)
    for node in ast.walk(module):
        match node:
            case ast.Constant(value=str(text)) if node not in prose and SQL_WRITE.search(text):
                yield node
            case ast.ImportFrom(module=str(name), names=names) if name.startswith("sqlalchemy"):
                if CORE_WRITES & {alias.name for alias in names}:
                    yield node


def test_only_the_journal_writes_sql() -> None:
    strays = [
        source.place(path, node)
        for path in source.files(*PRODUCT)
        if not any(place in (path, *path.parents) for place in WRITERS)
        for node in sql_writes(path)
    ]
    assert not strays, f"a change of state is a verb of models/journal: {strays}"


def task_definitions(module: ast.Module) -> Iterator[ast.expr]:
    """Every ``app.task`` and ``shared_task``, called or bare, used as a decorator or a function."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _makes_task(node.func):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (maker for maker in node.decorator_list if _makes_task(maker))


def _makes_task(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="shared_task") | ast.Attribute(attr="shared_task"):
            return True
        case ast.Attribute(value=ast.Name(id=name), attr="task"):
            return "app" in name or name == "celery"
    return False


def test_celery_tasks_are_named_explicitly() -> None:
    nameless = [
        source.place(path, node)
        for path in source.files(*PRODUCT)
        for node in task_definitions(source.tree(path))
        if not (isinstance(node, ast.Call) and any(word.arg == "name" for word in node.keywords))
    ]
    assert not nameless, f"a name on the wire never derives from a module path: {nameless}"


def test_the_top_level_packages_are_exactly_ours() -> None:
    found = {path.parent.name for path in ROOT.glob("*/*.py")} - {".venv", "build"}
    assert found == set(PACKAGES)
    assert not list(ROOT.glob("*.py")), "modules at the top shadow those of users"


def test_lock_files_are_hashed_and_name_no_host() -> None:
    for lock in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / lock).read_text()
        assert "://" not in text, lock
        entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
        unhashed = [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry]
        assert entries, lock
        assert not unhashed, f"{lock}: {unhashed}"


def test_the_development_lock_contains_the_one_that_runs() -> None:
    pins = {
        lock: set(re.findall(r"^[\w.\-\[\]]+==\S+", (ROOT / lock).read_text(), flags=re.MULTILINE))
        for lock in ("requirements.lock", "requirements-dev.lock")
    }
    missing = pins["requirements.lock"] - pins["requirements-dev.lock"]
    assert not missing, f"run `make lock`: {missing}"
