"""What is certified: the user's workflow, its input, and the counter that may stand for the recorder."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ops.testing.certify.faults import CertifyError
from tasks.workflow import Workflow

Counter = Callable[[str], Mapping[str, int]]

CASE = "{case}"  #: in a text of the input: a word that is another in each run


@dataclass(frozen=True, slots=True)
class Target:
    """A workflow and what its runs are given."""

    workflow: "Workflow[...]"
    input: Mapping[str, object]

    @property
    def agents(self) -> str:
        """The module that workers have to load."""
        return self.workflow.function.__module__

    def input_for(self, run_id: str) -> dict[str, object]:
        """The input of one run. Every run is given the same, but for what it marks as different."""
        return {name: _filled(value, run_id) for name, value in self.input.items()}


def find_workflow(named: str) -> "Workflow[...]":
    """``acme.review:contract_review``: a workflow in a module, or in its ``agent`` module."""
    module_name, _, name = named.partition(":")
    if not module_name or not name:
        raise CertifyError(f"{named!r} names no workflow; write it as acme.review:contract_review.")
    for module in (module_name, f"{module_name}.agent"):
        found = getattr(_import(module, beside=module != module_name), name, None)
        if isinstance(found, Workflow):
            return found
    raise CertifyError(
        f"{module_name} has no workflow named {name!r}: it is the name of the decorated function."
    )


def find_function(named: str) -> Callable[[str], Any]:
    """``acme.counts:by_run``: a function of the user's that takes one text."""
    module_name, _, name = named.partition(":")
    found = getattr(_import(module_name), name, None) if module_name and name else None
    if not callable(found):
        raise CertifyError(f"{named!r} names no function; write it as acme.counts:by_run.")
    function: Callable[[str], Any] = found
    return function


def count(counter: Counter | None, run_id: str) -> dict[str, int]:
    """What the user's counter says about a run now."""
    if counter is None:
        return {}
    counted: object = counter(run_id)
    if not isinstance(counted, Mapping) or not all(map(_is_count, counted.items())):
        raise CertifyError(f"The counter returned {counted!r} instead of counts by effect's name.")
    return dict(counted)


def _is_count(item: tuple[object, object]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], int)


def _import(name: str, *, beside: bool = False) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if beside and error.name == name:
            return None
        raise CertifyError(f"{name} cannot be imported: {error}.") from error


def _filled(value: Any, run_id: str) -> Any:
    match value:
        case str():
            return value.replace(CASE, run_id)
        case dict():
            return {key: _filled(item, run_id) for key, item in value.items()}
        case list():
            return [_filled(item, run_id) for item in value]
        case _:
            return value
