"""The workflows of this process: registered when their modules are imported, looked up by name."""

import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from models.errors import OnwardError
from models.settings import settings
from tasks.definition import where
from tasks.errors import AgentsError, DefinitionError

if TYPE_CHECKING:
    from tasks.step import BoundStep
    from tasks.workflow import Workflow

ENTRY_POINTS = "onward.agents"

_workflows: "dict[str, Workflow[...]]" = {}
_steps: "dict[str, BoundStep]" = {}  #: by wire name; filled at first look-up


def register(workflow: "Workflow[...]") -> None:
    """Make a workflow known. Importing a module again replaces what it registered before."""
    known = _workflows.get(workflow.name)
    if known is not None and _origin(known) != _origin(workflow):
        raise DefinitionError(
            f"two workflows are called {workflow.name}: version {known.version} in "
            f"{where(known.function)} and version {workflow.version} in "
            f"{where(workflow.function)}; one process serves one of them: "
            "rename one, or load one package only"
        )
    _workflows[workflow.name] = workflow
    _steps.clear()


def load_agents(spec: str | None = None) -> "tuple[Workflow[...], ...]":
    """Import the agent packages and the entry points of installed ones; what they registered.

    ``spec`` stands for ``ONWARD_AGENTS``. Steps are looked for here as well, so that a worker with
    a faulty agent does not start.
    """
    names = [part.strip() for part in (settings().agents if spec is None else spec).split(",")]
    for name in filter(None, names):
        _check_has_workflows(_import(name, source="ONWARD_AGENTS"), name)
    for entry in sorted(
        importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name
    ):
        _check_has_workflows(
            _import(entry.module, source=f"entry point {entry.name!r} of {ENTRY_POINTS}"),
            entry.module,
        )
    _index()
    return tuple(_workflows.values())


def workflows() -> "Mapping[str, Workflow[...]]":
    """What is registered, by name."""
    return MappingProxyType(_workflows)


def get_workflow(name: str) -> "Workflow[...]":
    """One workflow, or an error that names those there are."""
    found = _workflows.get(name)
    if found is None:
        known = ", ".join(sorted(_workflows)) or "none"
        raise AgentsError(
            f"no workflow is called {name!r}; loaded: {known}. Is its package in ONWARD_AGENTS?"
        )
    return found


def step_named(name: str, workflow: str | None = None) -> "BoundStep":
    """The step behind a name on the wire. Built-in steps are shared, so they need the workflow."""
    known = get_workflow(workflow).steps if workflow else _steps or _index()
    found = known.get(name)
    if found is None:
        raise AgentsError(
            f"no step is called {name!r} in {workflow or 'any loaded workflow'}; "
            "was the worker started with the package and version that planned it?"
        )
    return found


@contextmanager
def isolated() -> Iterator[None]:
    """An empty registry for the length of a test."""
    before = dict(_workflows)
    _workflows.clear()
    _steps.clear()
    try:
        yield
    finally:
        _workflows.clear()
        _workflows.update(before)
        _steps.clear()


def _index() -> "dict[str, BoundStep]":
    for workflow in _workflows.values():
        for name, bound in workflow.steps.items():
            known = _steps.setdefault(name, bound)
            if known is not bound and not bound.builtin:
                raise DefinitionError(
                    f"two workflows, {known.workflow} and {bound.workflow}, have a step "
                    f"named {name}: leave name= out, so that each gets a name of its own"
                )
    return _steps


def _import(name: str, *, source: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except OnwardError as error:
        raise AgentsError(f"{name} ({source}) cannot be loaded: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise AgentsError(
                f"{name} ({source}) cannot be loaded: it imports {error.name}, "
                "which is not installed"
            ) from error
        raise AgentsError(
            f"{source} names {name}, but there is no module {error.name}: is it spelt right, and "
            "installed or below the directory this process started in?"
        ) from error
    except Exception as error:
        raise AgentsError(
            f"{name} ({source}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _check_has_workflows(module: ModuleType, name: str) -> None:
    registered = list(_workflows.values())
    inside = any(
        f"{workflow.function.__module__}.".startswith(f"{name}.") for workflow in registered
    )
    if not inside and not any(_is_one_of(value, registered) for value in vars(module).values()):
        raise AgentsError(
            f"{name} has no workflow: decorate one with @workflow, or import the module "
            "that does in its __init__"
        )


def _is_one_of(value: object, registered: "list[Workflow[...]]") -> bool:
    return any(value is workflow for workflow in registered)


def _origin(workflow: "Workflow[...]") -> Any:
    return workflow.function.__module__, workflow.function.__qualname__
