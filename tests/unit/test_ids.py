"""Ids: order, identifiers that are refused, and keys that never meet."""

import os
import threading
from itertools import pairwise
from uuid import UUID

import pytest

from models.errors import InvalidIdentifier
from models.ids import (
    MAX_KEY,
    check_identifier,
    idempotency_key,
    new_batch_id,
    new_nonce,
    new_run_id,
    new_start_id,
    task_id,
)

RUN = "run-019a0c3f5b7d7c3e9f00aabbccddeeff"


def test_run_ids_sort_as_they_were_made() -> None:
    made = [new_run_id() for _ in range(2000)]
    assert all(earlier < later for earlier, later in pairwise(made))
    number = UUID(made[0].removeprefix("run-"))
    assert number.version == 7
    assert number.variant == "specified in RFC 4122"


def test_ids_say_what_they_name() -> None:
    assert new_batch_id().startswith("batch-")
    assert new_start_id().startswith("start-")
    assert new_nonce() != new_nonce()


def test_threads_never_get_the_same_id() -> None:
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend(new_run_id() for _ in range(500)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 2000


def test_a_forked_child_makes_ids_of_its_own() -> None:
    new_run_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_run_id().encode())
        os._exit(0)
    mine = new_run_id()
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert theirs.startswith("run-")
    assert theirs != mine


@pytest.mark.parametrize(
    "value", ["a", "contract 89", "契約-89", "x" * 200, "می\u200cخواهم", "a:b/c#2"]
)
def test_identifiers_that_can_name_something(value: str) -> None:
    assert check_identifier("key", value) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "must not be empty"),
        ("a\x00b", r"control character \(U\+0000\)"),
        ("a\nb", "control character"),
        ("\x7f", "control character"),
        (" a", "begins or ends with white space"),
        ("a\u00a0", "begins or ends with white space"),
        ("x" * 201, "has 201 characters and may have 200"),
        ("e\u0301", "not in Unicode normal form C"),
        ("a\ud800", "half of a surrogate pair"),
        ("a\u202eb", "invisible formatting character"),
        ("a\ufeff", "invisible formatting character"),
        ("a\u2028b", "line separator"),
        (7, "must be text, not int"),
        (None, "must be text, not NoneType"),
    ],
)
def test_identifiers_are_refused_by_field_and_reason(value: object, reason: str) -> None:
    with pytest.raises(InvalidIdentifier, match=f"^batch_key .*{reason}") as caught:
        check_identifier("batch_key", value)
    assert caught.value.field == "batch_key"
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


def test_keys_are_readable_where_they_can_be() -> None:
    assert idempotency_key(RUN, "think#2", "registry.file", 1) == f"{RUN}:think#2:registry.file:1"
    assert idempotency_key(RUN, "file", "registry.file") == f"{RUN}:file:registry.file"
    assert task_id(RUN, "read", 3) == f"{RUN}:read:3"
    assert task_id(RUN, "think#2", 1) == f"{RUN}:think=232:1"


HOSTILE = [
    ("a", "b", "c", None),
    ("a", "b:c", "", None),
    ("a:b", "c", "", None),
    ("a", "b", "", 1),
    ("a", "b", "1", None),
    ("a", "b", "1", 1),
    ("a", "b", "%31", 1),
    ("a", "b", "é", None),
    ("a", "b", "%C3%A9", None),
    ("a", "b", "e\u0301", None),
    ("a", "b", "\ud800", None),
    ("a", "b", "\x00", None),
    ("a", "b", "x" * 250, None),
    ("a", "b", "x" * 251, None),
    ("a", "b", "x" * 252, None),
    ("a", "b", "x" * 251 + "~", None),
    ("a", "b" * 250, "x", None),
    ("a", "B" * 250, "x", None),
]


def test_keys_never_meet_whatever_their_parts_are_called() -> None:
    keys = [idempotency_key(run, step, name, ordinal) for run, step, name, ordinal in HOSTILE]
    assert len(set(keys)) == len(HOSTILE)
    assert all(len(key) <= MAX_KEY and key.isascii() and key.isprintable() for key in keys)
    # What a long key is shortened to cannot itself be asked for as a name.
    long = idempotency_key("a", "b", "x" * 300)
    assert idempotency_key("a", "b", long.removeprefix("a:b:")) != long


def test_keys_are_derived_and_never_drawn() -> None:
    for run, step, name, ordinal in HOSTILE:
        assert idempotency_key(run, step, name, ordinal) == idempotency_key(
            run, step, name, ordinal
        )
