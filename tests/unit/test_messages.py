"""Messages about foreign values: the failure writer itself must not fail."""

import pickle

import pytest

from models import errors
from models.messages import describe, path_of, safe_repr


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


class ToolError(Exception):
    pass


def test_c01_an_exception_with_odd_arguments_is_described() -> None:
    shown = describe(ToolError({1, 2}, object(), "bad \x00 byte"))
    assert shown.startswith("ToolError: ({1, 2}, <object object")
    assert describe(ToolError("bad \x00 byte \x1b[31m \ud800 é")) == (
        "ToolError: bad \\x00 byte \\x1b[31m \\ud800 é"
    )
    assert describe(Hostile()) == "Hostile: ()"
    assert describe(Hostile(Hostile())).startswith("Hostile: <tuple, whose repr raised Runtime")
    assert describe(KeyError()) == "KeyError"
    assert len(describe(ToolError("x" * 10**6))) < 2100


def test_safe_repr_is_short_and_printable() -> None:
    assert safe_repr("a\x00é") == "'a\\x00\\xe9'"
    assert len(safe_repr("x" * 10**6)) == 200
    assert safe_repr(10**5000) == "<int, whose repr raised ValueError>"


def test_paths_read_like_code() -> None:
    assert path_of(["findings", 3, "score", "a b", (1, 2)]) == '$.findings[3].score["a b"][(1, 2)]'


@pytest.mark.parametrize(
    "error",
    [
        errors.UnserialisableValue("it", "$.a", type_name="object", advice="do not"),
        errors.OutputTooLarge("it", "$.a", field_size=2, size=3, limit=1),
        errors.ValueMismatch("it", "int", path="$", problem="no"),
        errors.UnsupportedAnnotation("it", "Foo", "no schema"),
        errors.UndecodableValue("bad", "text"),
        errors.InvalidIdentifier("key", "is empty", ""),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_the_parent_of_a_pool_child_whole(error: errors.OnwardError) -> None:
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - as the worker pool does
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
