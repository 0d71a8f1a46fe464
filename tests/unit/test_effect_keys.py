"""The keys of a step's calls: by place or by name, the same in every attempt, never by chance."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InvalidIdentifier
from models.ids import MAX_KEY
from tasks.errors import CallNameNeeded, CallNameTaken
from tasks.ordering import Order


def order(run_id: str = "run-1", step_key: str = "file") -> Order:
    made = Order(run_id, step_key)
    made.enter()
    return made


def test_calls_of_one_tool_are_counted_from_one_and_tools_apart() -> None:
    keys = order()
    made = [keys.key(tool, None) for tool in ("mail", "mail", "file", "mail")]
    assert made == [
        "run-1:file:mail:1",
        "run-1:file:mail:2",
        "run-1:file:file:1",
        "run-1:file:mail:3",
    ]
    assert keys.given == set(made)


def test_every_attempt_gives_the_same_keys() -> None:
    calls = [("mail", None), ("mail", "to the customer"), ("mail", None)]
    first, again = ([keys.key(*call) for call in calls] for keys in (order(), order()))
    assert first == again


def test_a_name_takes_no_place_and_no_place_has_a_name() -> None:
    keys = order()
    assert keys.key("mail", "1") != keys.key("mail", None)
    assert keys.key("mail", None) == "run-1:file:mail:2"


def test_a_name_is_for_one_call_of_one_tool() -> None:
    keys = order()
    keys.key("mail", "receipt")
    keys.key("file", "receipt")
    with pytest.raises(
        CallNameTaken, match=r"calls mail twice with name='receipt'.*nothing was sent"
    ):
        keys.key("mail", "receipt")


@pytest.mark.parametrize("name", ["", " x", "a\nb", "a\x00b"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidIdentifier):
        order().key("mail", name)


def test_another_thread_needs_names() -> None:
    keys = order()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(CallNameNeeded, match=r"nothing was sent.*name=\.\.\."):
            pool.submit(keys.key, "mail", None).result()
        assert pool.submit(keys.key, "mail", "receipt").result() == "run-1:file:mail::receipt"
    assert keys.key("mail", None) == "run-1:file:mail:1"  # what was refused took no place


def in_loop(keys: Order, call: Callable[[], str], *, beside: bool) -> str:
    """A call from the body's own task, or from one that it started."""

    async def inner() -> str:
        return call()

    async def body() -> str:
        keys.enter()
        return await (asyncio.create_task(inner()) if beside else inner())

    return asyncio.run(body())


def test_another_task_needs_names() -> None:
    keys = order()
    with pytest.raises(CallNameNeeded):
        in_loop(keys, lambda: keys.key("mail", None), beside=True)
    named = in_loop(keys, lambda: keys.key("mail", "receipt"), beside=True)
    assert named == "run-1:file:mail::receipt"
    assert in_loop(keys, lambda: keys.key("mail", None), beside=False) == "run-1:file:mail:1"


def test_a_loop_that_a_plain_body_starts_is_beside_it() -> None:
    keys = order()

    async def inner() -> str:
        return keys.key("mail", None)

    with pytest.raises(CallNameNeeded):
        asyncio.run(inner())


def test_names_from_many_threads_are_given_once() -> None:
    keys, taken = order(), []
    barrier = threading.Barrier(8)

    def take() -> None:
        barrier.wait(10)
        try:
            keys.key("mail", "receipt")
        except CallNameTaken:
            taken.append(1)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 7


names = st.text(min_size=1, max_size=60).filter(lambda text: text == text.strip())


@given(st.lists(st.tuples(names, names, names), min_size=2, max_size=8, unique=True))
def test_no_two_calls_share_a_key_whatever_they_are_called(
    calls: list[tuple[str, str, str]],
) -> None:
    made = []
    for run_id, step_key, tool in calls:
        keys = order(run_id, step_key)
        made += [keys.key(tool, None), keys.key(tool, None)]
        try:
            made.append(keys.key(tool, tool))
        except InvalidIdentifier:
            continue
    assert len(set(made)) == len(made)
    assert all(key.isascii() and len(key) <= MAX_KEY for key in made)
