"""Parameters: what may be bound to a function, how it is stored, and how it comes back typed.

Adapters are built once per function, since pydantic's compilation costs milliseconds; binding a
call then costs a few microseconds, which is what a step pays.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_type_hints

from models.errors import OnwardError
from models.settings import settings
from models.values import Typed, encode
from tasks.errors import BindingError, DefinitionError

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_Shape = tuple[int, tuple[str, ...]]


class _NoInput:
    """Nothing is piped in, which is not the same as ``None`` being piped in."""

    def __repr__(self) -> str:
        return "NO_INPUT"


NO_INPUT: Final = _NoInput()


class Parameters:
    """The parameters of one function, without the context that a step takes first."""

    def __init__(self, fn: Callable[..., Any], *, owner: str, skip: int = 0) -> None:
        declared = list(inspect.signature(fn).parameters.values())[skip:]
        hints = annotations_of(fn, owner=owner)
        self._owner = owner
        self.annotations = {p.name: hints.get(p.name, Any) for p in declared}
        self.required = tuple(
            p.name for p in declared if p.default is p.empty and p.kind not in _VARIADIC
        )
        self._signature = inspect.Signature(declared)
        self._typed = {
            name: Typed(hint, subject=f"{owner}: {name}") for name, hint in self.annotations.items()
        }
        self._positional = tuple(p.name for p in declared if p.kind is p.POSITIONAL_OR_KEYWORD)
        self._named = frozenset(p.name for p in declared if p.kind not in _VARIADIC)
        self._rest = next((p.name for p in declared if p.kind is p.VAR_POSITIONAL), None)
        self._extra = next((p.name for p in declared if p.kind is p.VAR_KEYWORD), None)
        self._known_shapes: set[_Shape] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """In the order they are written."""
        return tuple(self.annotations)

    def check(self, positional_count: int, keywords: Iterable[str]) -> None:
        """Refuse a call the function could not take. Shapes once found good are remembered."""
        shape = (positional_count, tuple(keywords))
        if shape in self._known_shapes:
            return
        try:
            self._signature.bind(*(None,) * positional_count, **dict.fromkeys(shape[1]))
        except TypeError as mismatch:
            takes = ", ".join(self.names) or "nothing"
            raise BindingError(f"{self._owner}: {mismatch}; it takes: {takes}") from None
        self._known_shapes.add(shape)

    def dump(self, args: Sequence[object], kwargs: Mapping[str, object], *, piped: bool) -> str:
        """The bound values as the journal keeps them: ``{"args": [...], "kwargs": {...}}``.

        What the step could not read is refused here, where the plan is written, and not hours later
        where the step runs: with the journal's own errors (``UnserialisableValue``,
        ``ValueMismatch``, ``OutputTooLarge``), or ``BindingError`` for a wrong number of values.
        """
        offset = 1 if piped else 0
        self.check(offset + len(args), kwargs)
        listed = [self._store(self._slot(offset + at), value) for at, value in enumerate(args)]
        named = {
            encode(name): self._store(self._keyword(name), kwargs[name]) for name in sorted(kwargs)
        }
        pairs = ",".join(f"{name}:{text}" for name, text in named.items())
        return f'{{"args":[{",".join(listed)}],"kwargs":{{{pairs}}}}}'

    def load(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, piped: object = NO_INPUT
    ) -> tuple[list[object], dict[str, object]]:
        """Typed values for a call, from structures as the journal holds them."""
        structures = [*args] if piped is NO_INPUT else [piped, *args]
        self.check(len(structures), kwargs)
        values = [self._read(self._slot(at), structure) for at, structure in enumerate(structures)]
        return values, {name: self._read(self._keyword(name), kwargs[name]) for name in kwargs}

    def dump_named(self, values: Mapping[str, object]) -> str:
        """Values by name as one canonical JSON object."""
        named = {
            encode(name): self._store(self._keyword(name), values[name]) for name in sorted(values)
        }
        return "{" + ",".join(f"{name}:{text}" for name, text in named.items()) + "}"

    def load_named(self, structures: Mapping[str, object]) -> dict[str, object]:
        """Typed values by name; all that is missing, unknown or ill-typed is named at once."""
        wrong = [f"`{name}` is missing" for name in self.required if name not in structures]
        if self._extra is None:
            wrong += [f"`{name}` is unknown" for name in structures if name not in self._named]
        values: dict[str, object] = {}
        for name in structures:
            if name in self._named or self._extra is not None:
                try:
                    values[name] = self._read(self._keyword(name), structures[name])
                except BindingError as refused:
                    wrong.append(str(refused).removeprefix(f"{self._owner}: "))
        if wrong:
            takes = ", ".join(self.names) or "nothing"
            raise BindingError(f"{self._owner}: {'; '.join(wrong)} (it takes: {takes})")
        return values

    def by_name(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call by their parameters' names."""
        given = dict(zip(self._positional, args, strict=False))
        if len(args) > len(given) or given.keys() & kwargs:
            self.check(len(args), kwargs)  # which refuses it in words
        return {**given, **kwargs}

    def _slot(self, position: int) -> str:
        if position < len(self._positional):
            return self._positional[position]
        return self._rest or self._positional[-1]

    def _keyword(self, name: str) -> str:
        return name if name in self._named else self._extra or name

    def _read(self, parameter: str, structure: object) -> object:
        try:
            return self._typed[parameter].validate(structure)
        except OnwardError as error:
            raise BindingError(str(error)) from error

    def _store(self, parameter: str, value: object) -> str:
        return self._typed[parameter].dump(value, limit=settings().artifact_limit)


def annotations_of(fn: Callable[..., Any], *, owner: str) -> dict[str, Any]:
    """The function's resolved annotations; names it closes over count as known."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False))
    known = {name: cell.cell_contents for name, cell in cells.items() if not _is_empty(cell)}
    try:
        return get_type_hints(fn, localns=known, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise DefinitionError(
            f"{owner}: an annotation cannot be read ({error}); values are typed by annotation, "
            "so every name in them must be importable where the function is defined"
        ) from error


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # reading an empty cell is the only way to know
    except ValueError:
        return True
    return False
