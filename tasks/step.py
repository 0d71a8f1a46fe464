"""``@step`` and ``Then``, and a step bound to the workflow that uses it.

A step belongs to no workflow until a workflow uses it: ``read`` used by two workflows is two Celery
tasks, ``contract-review.read`` and ``archive.read``.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce, update_wrapper
from operator import or_
from types import MappingProxyType, UnionType
from typing import (
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    overload,
)

from models.settings import settings
from models.values import Typed
from tasks.binding import NO_INPUT, Parameters, annotations_of
from tasks.canvas import Canvas, Signature, as_canvas
from tasks.context import Context
from tasks.definition import Defined, check_step_function, check_step_name
from tasks.errors import Stop
from tasks.options import RetryPolicy, StepOptions, StepOptionsInput, step_options
from tasks.recorder.scopes import new_loop

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Then(Generic[T]):
    """A step's result and what to do next because of it.

    Only meaningful as the return value of a step. The signature's steps stand between this step and
    what followed it; they are committed together with ``value``. A loop of unknown length is a step
    that returns ``Then`` with itself at the end, until it returns a plain value.
    """

    value: T
    signature: Canvas

    def __post_init__(self) -> None:
        as_canvas(self.signature)


class Step(Defined, Generic[P, R]):
    """A function a run can stand on: still callable, bound into plans by ``.s`` and ``.si``."""

    __name__: str
    function: Callable[Concatenate[Context, P], R]

    def __init__(
        self, function: Callable[Concatenate[Context, P], R], options: StepOptions
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.options = options
        self.local_name: str = (
            options.name.rpartition(".")[2] if options.name else function.__name__
        )

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(ctx, *args, **kwargs)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """This step with values bound; the result of the step before it comes first."""
        return Signature(self, args, MappingProxyType(kwargs))

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """This step with all its values bound; it takes nothing from the step before it."""
        return Signature(self, args, MappingProxyType(kwargs), immutable=True)

    def name_in(self, workflow: str) -> str:
        """The name on the wire and in the journal; no module path is ever part of it."""
        return self.options.name or f"{workflow}.{self.local_name}"

    @cached_property
    def parameters(self) -> Parameters:
        """Resolved at first use, when every name in the annotations is defined."""
        return Parameters(self.function, owner=f"step {self.local_name}", skip=1)

    @cached_property
    def result_annotation(self) -> Any:
        """What the journal holds of a result: the annotation without ``Then``."""
        hints = annotations_of(self.function, owner=f"step {self.local_name}")
        return _without_then(hints.get("return", Any))

    @cached_property
    def result(self) -> Typed:
        """The adapter of ``result_annotation``."""
        return Typed(self.result_annotation)

    def __or__(self, other: object) -> NoReturn:
        as_canvas(self)
        raise AssertionError("as_canvas refuses steps")

    def __repr__(self) -> str:
        return f"<step {self.local_name}>"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BoundStep:
    """A step as one workflow uses it: all that a worker needs to run it."""

    name: str  #: on the wire and in the journal: ``contract-review.read``
    step: Step[..., Any]
    workflow: str
    version: str
    builtin: bool = False
    options: StepOptions
    parameters: Parameters
    result: Typed

    @property
    def function(self) -> Callable[..., Any]:
        """The author's function."""
        return self.step.function

    @property
    def retry(self) -> RetryPolicy:
        """What a known failure leads to."""
        return self.options.retry

    @property
    def queue(self) -> str:
        """The queue it runs on unless its signature says otherwise."""
        return queue_name(self.options.queue, workflow=self.workflow, version=self.version)

    @property
    def time_limit(self) -> float:
        """Hard limit in seconds; the pool kills the child that reaches it."""
        if self.options.time_limit is not None:
            return self.options.time_limit
        grace = settings().step_time_limit - settings().step_soft_time_limit
        return max(settings().step_time_limit, (self.options.soft_time_limit or 0) + grace)

    @property
    def soft_time_limit(self) -> float:
        """Raised inside the body before the hard limit kills it."""
        if self.options.soft_time_limit is not None:
            return self.options.soft_time_limit
        share = settings().step_soft_time_limit / settings().step_time_limit
        return min(settings().step_soft_time_limit, self.time_limit * share)

    def call(
        self,
        ctx: Context,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        piped: object = NO_INPUT,
    ) -> object:
        """Run the body on structures as the journal holds them; a coroutine is run to its end.

        Raises ``BindingError`` before the body starts when the values do not fit its parameters.
        The return value is the author's own, a ``Then`` included; ``result`` records it.
        """
        values, named = self.parameters.load(args, kwargs, piped=piped)
        value = self.step.function(ctx, *values, **named)
        if not inspect.iscoroutine(value):
            return value
        return _run(ctx, value)


def _run(ctx: Context, body: Coroutine[Any, Any, object]) -> object:
    """An async body, to its end; answers that a stopped one has paid for are waited for before its loop ends."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            value = runner.run(_to_its_end(ctx, body))
            runner.run(ctx.http.settle(None))
        except (Exception, Stop, BaseExceptionGroup) as error:
            runner.run(ctx.http.settle(error))
            raise
        finally:  # a shutdown, or the end of its time: no more waiting
            ctx.http.close()
        return value


async def _to_its_end(ctx: Context, body: Coroutine[Any, Any, object]) -> object:
    ctx.enter_task()
    return await body


def bind_step(step_: Step[..., Any], *, workflow: str, version: str) -> BoundStep:
    """The step as this workflow uses it; annotations are read and adapters built here."""
    return BoundStep(
        name=step_.name_in(workflow),
        step=step_,
        workflow=workflow,
        version=version,
        builtin=step_ is GATHER,
        options=step_.options,
        parameters=step_.parameters,
        result=step_.result,
    )


def queue_name(label: str, *, workflow: str, version: str) -> str:
    """``steps.contract-review@3``: old workers drain old runs, and new ones do not touch them."""
    return f"{label}.{workflow}@{version}"


@overload
def step(function: Callable[Concatenate[Context, P], R], /) -> Step[P, R]: ...


@overload
def step(
    **options: Unpack[StepOptionsInput],
) -> Callable[[Callable[Concatenate[Context, P], R]], Step[P, R]]: ...


def step(function: Any = None, /, **options: Any) -> Any:
    """Make a function a step: ``@step`` or ``@step(kind="llm", max_retries=4, rate_limit="30/m")``.

    The function takes the context first. Options have Celery's names; see ``StepOptionsInput``.
    """
    if function is None:
        return lambda decorated: _step(decorated, options)
    return _step(function, options)


def _step(function: Any, options: Mapping[str, Any]) -> Step[..., Any]:
    owner = check_step_function(function)
    checked = step_options(options, owner=owner)
    if checked.name is not None:
        check_step_name(checked.name, owner=owner)
    return Step(function, checked)


def _without_then(hint: Any) -> Any:
    """``Thought | Then[Thought]`` is recorded as ``Thought``."""
    if hint is Then:
        return Any
    origin = get_origin(hint)
    if origin is Then:
        return get_args(hint)[0]
    if origin not in (Union, UnionType):
        return hint
    plain = [kind for kind in get_args(hint) if kind is not Then and get_origin(kind) is not Then]
    promised = [get_args(kind)[0] for kind in get_args(hint) if get_origin(kind) is Then]
    kinds = [*plain, *(kind for kind in promised if kind not in plain)]
    return reduce(or_, kinds) if len(kinds) > 1 else (kinds or [Any])[0]


def _gather(_ctx: Context, value: Any = None) -> Any:
    """Hand on what came: the list of a group's results that no step of the author waits for."""
    return value


GATHER: Step[..., Any] = Step(_gather, StepOptions(name="onward.gather", kind="gather"))
