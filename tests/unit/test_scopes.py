"""Which request is which: paths and positions that are the same in every attempt, or a refusal."""

import asyncio
import contextvars
import random  # noqa: TID251 - tasks end in any order, on purpose
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tasks.errors import CallScopeNeeded
from tasks.recorder import scopes
from tasks.recorder.scopes import Numbering

WHAT = "step 'a' of run r"


class Body:
    """A body that asks; each request takes as long as it is told."""

    def __init__(self) -> None:
        self.numbering = Numbering()
        self.places: list[tuple[str, int, str]] = []

    def ask(self, what: str, during: Callable[[], object] = lambda: None) -> tuple[str, int]:
        with scopes.asking(self.numbering, what=WHAT) as turn:
            during()
            place = (turn.path, turn.take())
        self.places.append((*place, what))
        return place

    async def aask(self, what: str, *, seconds: float = 0.0) -> tuple[str, int]:
        with scopes.asking(self.numbering, what=WHAT) as turn:
            with scopes.sending():
                await asyncio.create_task(asyncio.sleep(seconds))  # a connection's own task
            place = (turn.path, turn.take())
        self.places.append((*place, what))
        return place

    def run(self, body: Callable[[], Any]) -> Any:
        with scopes.entered(self.numbering, WHAT):
            return body()

    def arun(self, body: Callable[[], Any]) -> Any:
        """As the engine runs an ``async def`` step."""

        async def whole() -> Any:
            scopes.enter_task()
            return await body()

        with (
            scopes.entered(self.numbering, WHAT),
            asyncio.Runner(loop_factory=scopes.new_loop) as runner,
        ):
            return runner.run(whole())

    def by_place(self) -> dict[tuple[str, int], str]:
        return {(path, position): what for path, position, what in self.places}


def test_requests_of_the_body_are_numbered_in_their_order() -> None:
    body = Body()
    assert body.run(lambda: [body.ask(what) for what in "abc"]) == [("", 0), ("", 1), ("", 2)]


def test_a_position_that_led_to_nothing_may_be_given_back() -> None:
    body = Body()

    def poll() -> None:
        with scopes.asking(body.numbering, what=WHAT) as turn:
            assert turn.take() == 0
            turn.give_back()

    body.run(poll)
    body.run(poll)
    assert body.run(lambda: body.ask("after")) == ("", 0)


@pytest.mark.parametrize("seed", range(6))
def test_gathered_tasks_keep_their_places_whatever_ends_first(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - order only
    body = Body()

    async def member(name: str) -> None:
        await asyncio.sleep(chance.random() / 50)
        await body.aask(f"{name} first", seconds=chance.random() / 50)
        await body.aask(f"{name} second", seconds=chance.random() / 50)

    async def whole() -> None:
        await body.aask("before")
        await asyncio.gather(*(member(name) for name in "abc"))
        await body.aask("after")

    body.arun(whole)
    main = [("", 0), ("", 1)]
    assert [body.by_place()[place] for place in main] == ["before", "after"]
    tasks = sorted({path for path, _ in body.by_place()} - {""})
    assert [body.by_place()[path, 0] for path in tasks] == ["a first", "b first", "c first"]
    assert [body.by_place()[path, 1] for path in tasks] == ["a second", "b second", "c second"]


def test_tasks_that_a_connection_needs_are_not_counted() -> None:
    def paths(*, live: bool) -> list[tuple[str, int]]:
        body = Body()

        async def replayed(what: str) -> tuple[str, int]:
            return body.ask(what)

        async def whole() -> list[tuple[str, int]]:
            ask = body.aask if live else replayed
            first = await ask("one")
            return [first, *await asyncio.gather(ask("two"), ask("three"))]

        found: list[tuple[str, int]] = body.arun(whole)
        return found

    assert paths(live=True) == paths(live=False)


def test_tasks_of_tasks_have_places_of_their_own() -> None:
    body = Body()

    async def inner(name: str) -> tuple[str, int]:
        return await body.aask(name)

    async def outer(name: str) -> list[Any]:
        return list(await asyncio.gather(inner(name + "1"), inner(name + "2")))

    async def whole() -> list[Any]:
        return list(await asyncio.gather(outer("a"), outer("b")))

    (a1, a2), (b1, b2) = body.arun(whole)
    assert len({a1, a2, b1, b2}) == 4
    assert a1[0].rpartition("/")[0] == a2[0].rpartition("/")[0] != b1[0].rpartition("/")[0]


def test_two_requests_of_one_scope_at_once_are_refused() -> None:
    body = Body()

    async def whole() -> None:
        with (
            scopes.asking(body.numbering, what=WHAT),
            pytest.raises(CallScopeNeeded, match="while another one of the same scope"),
        ):
            body.ask("second")

    body.arun(whole)


def test_a_thread_needs_a_name_and_gets_its_own_numbers() -> None:
    body = Body()

    def member(name: str) -> list[tuple[str, int]]:
        with pytest.raises(CallScopeNeeded, match=r"thread of its own.*with ctx\.scope\(name\)"):
            body.ask("unnamed")
        with scopes.named(body.numbering, name, what=WHAT):
            return [body.ask(name) for _ in range(3)]

    def whole() -> list[Any]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(member, ["left", "right", "a/b"]))

    expected = [
        [(path, number) for number in range(3)]
        for path in ("/name:left", "/name:right", "/name:a%2Fb")
    ]
    assert body.run(whole) == expected


def test_a_thread_that_inherited_the_bodys_scope_is_refused_once_the_body_has_asked() -> None:
    body = Body()

    def whole() -> BaseException | None:
        body.ask("own")
        raised: list[BaseException | None] = [None]

        def other() -> None:
            try:
                body.ask("other")
            except CallScopeNeeded as error:
                raised[0] = error

        thread = threading.Thread(target=contextvars.copy_context().run, args=(other,))
        thread.start()
        thread.join()
        return raised[0]

    assert isinstance(body.run(whole), CallScopeNeeded)


def test_an_async_body_may_ask_from_threads_one_by_one() -> None:
    body = Body()

    async def whole() -> list[tuple[str, int]]:
        return [await asyncio.to_thread(body.ask, what) for what in "ab"]

    assert body.arun(whole) == [("", 0), ("", 1)]


def test_a_loop_of_the_bodys_own_numbers_its_tasks_once_it_is_told_to() -> None:
    body = Body()

    async def agent() -> list[Any]:
        return list(await asyncio.gather(body.aask("a"), body.aask("b")))

    def run_sync() -> Any:
        with asyncio.Runner() as runner:
            scopes.number_tasks(runner.get_loop())
            return runner.run(agent())

    first, second = body.run(run_sync)
    assert first != second


def test_tasks_that_were_there_before_their_loop_numbered_are_refused() -> None:
    body = Body()

    async def member(name: str, seconds: float) -> object:
        await asyncio.sleep(seconds)
        try:
            return await body.aask(name)
        except CallScopeNeeded as error:
            return error

    async def agent() -> list[object]:
        return list(await asyncio.gather(member("a", 0.0), member("b", 0.05)))

    found = body.run(lambda: asyncio.run(agent()))
    assert [type(one) for one in found] == [tuple, CallScopeNeeded]


def test_an_agent_that_runs_to_its_end_twice_asks_in_the_same_order_each_time() -> None:
    def places() -> list[Any]:
        body = Body()

        async def agent(name: str) -> Any:
            return await body.aask(name)

        return list(body.run(lambda: [asyncio.run(agent("a")), asyncio.run(agent("b"))]))

    assert places() == places()
    assert len(set(places())) == 2


def test_what_an_ended_attempt_left_behind_cannot_ask_for_the_next() -> None:
    first, second = Body(), Body()

    def whole() -> None:
        with pytest.raises(CallScopeNeeded):
            second.ask("late")

    first.run(whole)
