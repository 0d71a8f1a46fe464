"""``@workflow``: a versioned definition whose function writes the plan, once, at submission."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property, update_wrapper
from types import MappingProxyType
from typing import Any, Generic, ParamSpec

from models.digests import digest, digest_text
from models.messages import safe_repr
from models.plan import Plan
from models.values import schema_of
from tasks import registry
from tasks.binding import Parameters
from tasks.budgets import Budget
from tasks.canvas import Canvas, as_canvas
from tasks.compile import compile_plan
from tasks.definition import Defined, check_workflow, check_workflow_function, source_of
from tasks.discovery import steps_used_by
from tasks.errors import DefinitionError, PlanCircle, PlanError, StepNotRegistered
from tasks.options import check_label, field_names
from tasks.step import GATHER, BoundStep, Step, Then, bind_step, queue_name, step
from tasks.within import Within

__all__ = ["BoundStep", "Step", "Then", "Workflow", "step", "workflow"]

P = ParamSpec("P")
ON_FAILURE = "compensate"  #: what a workflow may ask for when a run of it fails

_building: ContextVar[tuple[str, ...]] = ContextVar(
    "workflows whose functions are running", default=()
)


class Workflow(Defined, Generic[P]):
    """A workflow and the steps it can reach. ``plan`` makes the plan of a run from its input."""

    def __init__(
        self,
        function: Callable[P, Canvas],
        *,
        name: str,
        version: str,
        compatible_with: tuple[str, ...] = (),
        extra_steps: tuple[Step[..., Any], ...] = (),
        extra_queues: tuple[str, ...] = (),
        on_failure: str | None = None,
        budget: Budget | None = None,
        allow_credentials: frozenset[str] = frozenset(),
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self.version = version
        self.compatible_with = compatible_with
        self.extra_steps = extra_steps
        self._extra_queues = extra_queues
        self.on_failure = on_failure
        self.budget = budget
        self.allow_credentials = allow_credentials

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Canvas:
        """The canvas itself: to look at in a test, or to use inside another workflow's plan."""
        path = _building.get()
        if self.name in path:
            circle = " -> ".join([*path[path.index(self.name) :], self.name])
            raise PlanCircle(
                f"workflows call each other in a circle: {circle}; "
                "a loop is written by returning Then(value, next_step.s()) from a step"
            )
        with Within(_building, (*path, self.name)):
            returned: object = self.function(*args, **kwargs)
        if returned is None:
            raise PlanError(
                f"workflow {self.name} returned None: it must return its plan, such as read.s(uri)"
            )
        try:
            return as_canvas(returned)
        except DefinitionError as odd:
            raise PlanError(f"workflow {self.name} returned no plan: {odd}") from None

    def bind(self, input: Mapping[str, object]) -> dict[str, object]:
        """Typed arguments from a run's input, a JSON object by parameter name."""
        return self.parameters.load_named(input)

    def input_text(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The canonical JSON object that these arguments are stored as."""
        return self.parameters.dump_named(self.bind(self.parameters.by_name(args, kwargs)))

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """Run the function once on validated arguments and compile what it returns."""
        return self.plan_of(self.bind(self.parameters.by_name(args, kwargs)))

    def plan_of(self, values: Mapping[str, Any]) -> Plan:
        """The plan for arguments that ``bind`` has returned."""
        build: Callable[..., Canvas] = self
        return compile_plan(build(**values), workflow=self)

    @cached_property
    def parameters(self) -> Parameters:
        """The function's parameters: the run's input."""
        return Parameters(self.function, owner=f"input of {self.name}")

    @cached_property
    def steps(self) -> Mapping[str, BoundStep]:
        """Every step a run of this workflow may need, by its name on the wire.

        Looked for at first use, since a module's later steps are not defined yet when its workflow
        is decorated.
        """
        bound: dict[str, BoundStep] = {}
        for found in (GATHER, *steps_used_by(self)):
            if found is GATHER and bound:
                continue
            candidate = bind_step(found, workflow=self.name, version=self.version)
            if candidate.name in bound:
                raise DefinitionError(
                    f"workflow {self.name} uses two steps called {candidate.name}: "
                    f"{_place(bound[candidate.name].step)} and {_place(found)}; "
                    f'give one of them a name: @step(name="{self.name}.other")'
                )
            bound[candidate.name] = candidate
        return MappingProxyType(bound)

    def bound(self, step_: Step[..., Any]) -> BoundStep:
        """This workflow's own form of a step."""
        found = self.steps.get(step_.name_in(self.name))
        if found is None or found.step is not step_:
            raise StepNotRegistered(
                f"step {step_.local_name} ({_place(step_)}) is in the plan of {self.name} but was "
                "not found in its code, so no worker would know it: name it in "
                f'@workflow("{self.name}", ..., steps=[{step_.local_name}])'
            )
        return found

    @cached_property
    def labels(self) -> frozenset[str]:
        """First parts of its queues' names."""
        return frozenset(
            (*self._extra_queues, *(bound.options.queue for bound in self.steps.values()))
        )

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues a worker of this version serves; those of compatible versions included."""
        versions = (self.version, *self.compatible_with)
        return tuple(
            queue_name(label, workflow=self.name, version=version)
            for version in versions
            for label in sorted(self.labels)
        )

    def queue(self, label: str) -> str:
        """The full name of one queue, refused when no worker of this workflow listens to it."""
        if label not in self.labels:
            raise PlanError(
                f"queue {label!r} is none of the queues of {self.name} "
                f"({', '.join(sorted(self.labels))}): "
                f'name it in @workflow("{self.name}", ..., queues=["{label}"])'
            )
        return queue_name(label, workflow=self.name, version=self.version)

    @cached_property
    def interface_digest(self) -> str:
        """Changes when a stored plan or result may no longer fit: names, parameters, results."""
        steps = {
            name: {
                "parameters": _interface(bound.parameters),
                "result": schema_of(bound.step.result_annotation),
            }
            for name, bound in self.steps.items()
        }
        return digest({"input": _interface(self.parameters), "steps": steps})

    @cached_property
    def code_digest(self) -> str:
        """Of the source of workflow and steps: evidence of what ran, never a reason to stop."""
        texts = [source_of(self.function)]
        texts += [
            f"{name}\n{source_of(bound.function)}" for name, bound in sorted(self.steps.items())
        ]
        return digest_text("\n".join(texts))

    def __repr__(self) -> str:
        return f"<workflow {self.name} version {self.version}>"


def workflow(
    name: str,
    *,
    version: str,
    compatible_with: Sequence[str] = (),
    steps: Sequence[Step[..., Any]] = (),
    queues: Sequence[str] = (),
    on_failure: str | None = None,
    budget: Budget | None = None,
    allow_credentials: Sequence[str] = (),
) -> Callable[[Callable[P, Canvas]], Workflow[P]]:
    """Make a function a workflow: ``@workflow("contract-review", version="3")``.

    ``steps`` names steps that cannot be found by reading the code, ``queues`` labels that only
    ``.set(queue=...)`` uses, ``compatible_with`` older versions whose runs this code may take on.
    ``on_failure="compensate"``: what a run did is undone, last first, when it fails for good. ``budget`` is what
    each run may spend, where its submission names no other. ``allow_credentials`` names fields of the input that
    look like credentials and are none.
    """
    check_workflow(name, version=version, compatible_with=compatible_with)
    for extra in steps:
        if not isinstance(extra, Step):
            raise DefinitionError(f"workflow {name}: steps= takes steps, not {extra!r}")
    for label in queues:
        check_label(label, option="queues", owner=f"workflow {name}")
    allowed = field_names(allow_credentials, option="allow_credentials", owner=f"workflow {name}")
    if on_failure not in (None, ON_FAILURE):
        raise DefinitionError(
            f"workflow {name}: on_failure={safe_repr(on_failure)} must be {ON_FAILURE!r} or left out"
        )
    if not (budget is None or isinstance(budget, Budget)):
        raise DefinitionError(
            f"workflow {name}: budget= takes Budget(...), not {safe_repr(budget)}"
        )

    def decorate(function: Callable[P, Canvas]) -> Workflow[P]:
        check_workflow_function(function)
        made = Workflow(
            function, name=name, version=version, compatible_with=tuple(compatible_with),
            extra_steps=tuple(steps), extra_queues=tuple(queues), on_failure=on_failure, budget=budget,
            allow_credentials=allowed,
        )  # fmt: skip
        registry.register(made)
        return made

    return decorate


def _interface(parameters: Parameters) -> dict[str, object]:
    return {
        name: {"schema": schema_of(annotation), "required": name in parameters.required}
        for name, annotation in parameters.annotations.items()
    }


def _place(step_: Step[..., Any]) -> str:
    return f"{step_.function.__module__}.{step_.function.__qualname__}"
