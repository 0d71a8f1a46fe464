"""What ``@step(...)`` accepts: Celery's option names, checked when the module is imported."""

import difflib
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from tasks.errors import DefinitionError

_PER_SECOND = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(r"(\d+(?:\.\d+)?)/([smh])")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}")
_DOUBLINGS_MAX = 60  #: beyond it any delay is above any cap, and floats stay exact


class StepOptionsInput(TypedDict, total=False):
    """The keyword arguments of ``@step``."""

    name: str | None
    kind: str
    max_retries: int
    default_retry_delay: float
    retry_backoff: bool | float
    retry_backoff_max: float
    retry_jitter: bool
    autoretry_for: tuple[type[Exception], ...]
    dont_autoretry_for: tuple[type[Exception], ...]
    rate_limit: str | float | None
    time_limit: float | None
    soft_time_limit: float | None
    queue: str
    untracked: bool
    lookup: Callable[..., Any] | None
    on_replay_mismatch: Literal["block", "branch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What happens after a *known* failure; a vanished worker is the sweep's business."""

    max_retries: int = 0
    default_retry_delay: float = 10.0
    retry_backoff: bool | float = False  #: exponential from 1 s, or from this many seconds
    retry_backoff_max: float = 600.0
    retry_jitter: bool = True
    autoretry_for: tuple[type[Exception], ...] = (Exception,)
    dont_autoretry_for: tuple[type[Exception], ...] = ()

    def retries(self, error: BaseException) -> bool:
        """Whether this kind of error is tried again at all."""
        return isinstance(error, self.autoretry_for) and not isinstance(
            error, self.dont_autoretry_for
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Checked options of a step."""

    name: str | None = None
    kind: str = "step"
    retry: RetryPolicy = RetryPolicy()
    rate_limit: float | None = None  #: claims a second
    time_limit: float | None = None
    soft_time_limit: float | None = None
    queue: str = "steps"
    untracked: bool = False
    lookup: Callable[..., Any] | None = None
    #: The body asks something else than it has on record: stop for a person, or set the records aside and ask
    #: anew, unless an effect of the step may rest on them.
    on_replay_mismatch: str = "block"


_RETRY_NAMES = tuple(field.name for field in fields(RetryPolicy))


def step_options(given: Mapping[str, Any], *, owner: str) -> StepOptions:
    """Options as written, checked, or an error that names step, option and value."""
    for name in given:
        if name not in StepOptionsInput.__annotations__:
            raise DefinitionError(f"{owner}: unknown option {name!r}{_hint(name)}")
    rest = {name: value for name, value in given.items() if name not in _RETRY_NAMES}
    retry = RetryPolicy(**{name: _frozen(given[name]) for name in _RETRY_NAMES if name in given})
    rest["rate_limit"] = per_second(rest.get("rate_limit"), owner=owner)
    options = StepOptions(retry=retry, **rest)
    _check_retry(retry, owner)
    _check_limits(options, owner)
    _check_labels(options, owner)
    _check_mismatch(options, owner)
    return options


def per_second(rate: str | float | None, *, owner: str) -> float | None:
    """``"30/m"``, ``"10/s"``, ``"100/h"`` or a number a second, as Celery spells it."""
    if rate is None:
        return None
    match = _RATE.fullmatch(rate.strip()) if isinstance(rate, str) else None
    if match:
        value = float(match[1]) / _PER_SECOND[match[2]]
    elif isinstance(rate, int | float) and not isinstance(rate, bool):
        value = float(rate)
    else:
        raise DefinitionError(
            f"{owner}: rate_limit={rate!r} is not a rate; write '10/s', '30/m' or '100/h'"
        )
    if not 0 < value < float("inf"):
        raise DefinitionError(
            f"{owner}: rate_limit={rate!r} would never let the step run; leave it out for no limit"
        )
    return value


def retry_delay(policy: RetryPolicy, failures: int, *, seed: str = "") -> float:
    """Seconds until the next attempt after the ``failures``-th failure.

    Jitter takes up to half of an exponential delay away, so that steps that failed together do not
    come back together. It is drawn from ``seed`` (run and step), which keeps this function pure.
    """
    if not policy.retry_backoff:
        return float(policy.default_retry_delay)
    factor = 1.0 if policy.retry_backoff is True else float(policy.retry_backoff)
    delay = min(factor * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS_MAX), policy.retry_backoff_max)
    if not policy.retry_jitter:
        return float(delay)
    drawn = hashlib.blake2b(f"{seed}:{failures}".encode(), digest_size=4).digest()
    return delay * (1 - 0.5 * int.from_bytes(drawn) / 0xFFFFFFFF)


def _check_retry(retry: RetryPolicy, owner: str) -> None:
    if type(retry.max_retries) is not int or retry.max_retries < 0:  # True is an int as well
        raise DefinitionError(
            f"{owner}: max_retries={retry.max_retries!r} must be a whole number of 0 or more"
        )
    for name in ("default_retry_delay", "retry_backoff", "retry_backoff_max"):
        value = getattr(retry, name)
        if not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise DefinitionError(
                f"{owner}: {name}={value!r} must be a number of seconds of 0 or more"
            )
    for name in ("autoretry_for", "dont_autoretry_for"):
        kinds = getattr(retry, name)
        if not isinstance(kinds, tuple) or not all(_is_error(kind) for kind in kinds):
            raise DefinitionError(f"{owner}: {name}={kinds!r} must be a tuple of exception classes")


def _check_limits(options: StepOptions, owner: str) -> None:
    for name in ("time_limit", "soft_time_limit"):
        value = getattr(options, name)
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < float("inf")
        ):
            raise DefinitionError(f"{owner}: {name}={value!r} must be a number of seconds above 0")
    soft, hard = options.soft_time_limit, options.time_limit
    if soft is not None and hard is not None and soft > hard:
        raise DefinitionError(
            f"{owner}: soft_time_limit={soft} is above time_limit={hard}: "
            "the step would be killed before it is warned"
        )


def check_label(label: object, *, option: str, owner: str) -> None:
    """Labels become part of queue names and metrics."""
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise DefinitionError(
            f"{owner}: {option}={label!r} must be ASCII letters, digits, '.', '_', '-', 50 at most"
        )


def _check_mismatch(options: StepOptions, owner: str) -> None:
    if options.on_replay_mismatch not in ("block", "branch"):
        raise DefinitionError(
            f"{owner}: on_replay_mismatch={options.on_replay_mismatch!r} must be 'block' or 'branch'"
        )


def field_names(names: object, *, option: str, owner: str) -> frozenset[str]:
    """Names as a list; one text would be taken for its letters."""
    if not isinstance(names, list | tuple | set | frozenset) or not all(
        isinstance(name, str) for name in names
    ):
        raise DefinitionError(f"{owner}: {option}= takes a list of field names, not {names!r}")
    return frozenset(names)


def _check_labels(options: StepOptions, owner: str) -> None:
    check_label(options.kind, option="kind", owner=owner)
    check_label(options.queue, option="queue", owner=owner)
    if not isinstance(options.untracked, bool):
        raise DefinitionError(f"{owner}: untracked={options.untracked!r} must be True or False")
    if options.lookup is not None and not (options.untracked and callable(options.lookup)):
        raise DefinitionError(
            f"{owner}: lookup= takes a function, and only together with untracked=True"
        )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def _hint(name: str) -> str:
    known = sorted(StepOptionsInput.__annotations__)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
