"""Exceptions as they may leave this process: without values of secrets, in their words and in those behind them."""

from collections.abc import Iterator

from pydantic import ValidationError

from models import redaction

#: pydantic's type of the refusal of a value where a reference to a secret belongs: the value is never shown.
NOT_A_REFERENCE = "secret_reference"


class Redacted(Exception):
    """What an error says, whose own words held the value of a secret."""


def told(error: BaseException) -> str:
    """``str(error)`` without values of secrets. Raises what that raises."""
    if isinstance(error, ValidationError) and hides_input(error):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        lines = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
        return redaction.redact("\n".join([f"{error.title} does not fit", *lines]))
    return redaction.redact(str(error))


def hides_input(error: ValidationError) -> bool:
    """Whether its input may be a credential."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return any(one["type"] == NOT_A_REFERENCE for one in found)


def redact_traceback(text: str, error: BaseException | None) -> str:
    """A formatted traceback of ``error`` without values of secrets."""
    for one in _chain(error) if error is not None else ():
        if isinstance(one, ValidationError) and hides_input(one):
            text = text.replace(str(one), told(one))
    return redaction.redact(text)


def scrubbed(error: BaseException) -> BaseException:
    """What may be raised instead of ``error``: itself when neither it nor what led to it holds a secret.

    For those who put exceptions into messages without asking us, as Celery's task events do.
    """
    if not redaction.is_active() or all(_is_clean(one) for one in _chain(error)):
        return error
    if not all(_is_clean(one) for one in _members(error)):
        error = _stand_in(error).with_traceback(error.__traceback__)
    error.__cause__, error.__context__ = None, None
    return error


def _stand_in(error: BaseException) -> BaseException:
    if not isinstance(error, Exception):  # an exit stays one
        try:
            return type(error)(told(error))
        except Exception:  # noqa: S110 - a constructor that wants more
            pass
    return Redacted(f"{type(error).__name__}: {told(error)}")


def _is_clean(error: BaseException) -> bool:
    if isinstance(error, ValidationError) and hides_input(error):
        return False
    try:
        texts = [str(error), repr(error), *getattr(error, "__notes__", ())]
    except Exception:
        return False
    return all(redaction.redact(text) is text for text in texts)


def _members(error: BaseException) -> Iterator[BaseException]:
    """It, and those within it."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _members(one)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """It, those within it, and those that led to it, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
