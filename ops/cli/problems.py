"""The one place where an error becomes a sentence and an exit code."""

import os
from pathlib import Path

import psycopg
from kombu.exceptions import OperationalError as BrokerError
from pydantic import ValidationError
from redis import RedisError

from examples.contract_review.errors import ReviewError
from models.credentials import is_credential
from models.errors import OnwardError
from models.journal.errors import JournalUnavailable
from models.messages import one_line
from ops import schema
from ops.cli import target
from ops.stack.errors import StackError

REFUSED, USAGE = 1, 2
_LONGEST = 2_000
_NOT_OUR_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)


class UsageProblem(OnwardError):
    """The command cannot mean what it was given."""

    error_type = "usage"


def explain(error: BaseException) -> tuple[str, int] | None:
    """What to tell the user, and the exit code; None for what nobody foresaw, which is a bug of ours."""
    cause = getattr(error, "orig", None)  # what SQLAlchemy wraps, which migrations alone go through
    sentence = _sentence(cause if isinstance(cause, psycopg.Error) else error)
    if sentence is None:
        return None
    is_usage = isinstance(error, UsageProblem | ValidationError | UnicodeEncodeError)
    return one_line(sentence, limit=_LONGEST), USAGE if is_usage else REFUSED


def _sentence(error: BaseException) -> str | None:
    match error:
        case JournalUnavailable():
            return f"{str(error).rstrip('.')}. {_where_is_the_database()}"
        case OnwardError() | StackError() | ReviewError():
            return str(error)
        case psycopg.Error():
            return _database_sentence(error)
        case BrokerError() | RedisError():
            return (
                f"The broker does not answer: {_first_line(error)}. The journal keeps the work; check "
                "ONWARD_BROKER_URL."
            )
        case ValidationError() if error.title == "Settings":
            return _setting_sentence(error)
        case UnicodeEncodeError():
            return "An argument holds bytes that are no text in UTF-8."
        case _:
            return None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _where_is_the_database() -> str:
    home = target.home().path
    if target.is_explicit():
        return "Is it running, and is ONWARD_DATABASE_URL right?"
    if os.environ.get("ONWARD_STACK"):
        return f"It belongs to the stack of {home}; its log is {home / 'logs' / 'postgres.log'}."
    return f"No local stack runs in {_shown(home)}: start one with `onward up`, or set ONWARD_DATABASE_URL."


def _shown(path: Path) -> str:
    try:
        return f"./{path.relative_to(Path.cwd())}"
    except ValueError:
        return str(path)


def _database_sentence(error: psycopg.Error) -> str:
    said = _first_line(error)
    if not isinstance(error, _NOT_OUR_SCHEMA):
        return f"The database refused: {said}."
    try:
        found = schema.look()
    except (OnwardError, psycopg.Error):
        return f"The database has no journal that this version can read: {said}."
    return f"The journal's schema was changed by hand: {said}." if found.fits else found.sentence


def _setting_sentence(error: ValidationError) -> str:
    told = []
    for problem in error.errors(include_url=False):
        if problem["type"] == "default_factory_not_called":
            continue  # it could not be derived from the setting that is wrong
        message = problem["msg"].removeprefix("Value error, ")
        name = "_".join(str(part) for part in problem["loc"]).upper()
        given = problem["input"]
        hidden = name.endswith("_KEY") or is_credential(given, name)
        shown = "" if hidden else f", not {given!r}"
        told.append(f"ONWARD_{name}: {message}{shown}" if name else message)
    return "; ".join(told)
