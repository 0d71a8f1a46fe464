"""Only the environment of a framework collects its tests: ``make adapters``."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec

import pytest

from tests.adapters.proof import Desk, a_desk
from tests.support.world import World

_NEEDS = {
    "pydantic_ai": ("pydantic_ai",),
    "openai_agents": ("agents",),
    "langgraph": ("langgraph", "langchain_openai"),
    "sdks": ("openai", "anthropic"),
}
collect_ignore = [
    folder for folder, names in _NEEDS.items() if not all(find_spec(name) for name in names)
]


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """Frameworks leave the thread's loop and their clients open: collected here, they are nobody's failure."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = asyncio.get_event_loop_policy()
        with suppress(RuntimeError):
            policy.get_event_loop().close()
        policy.set_event_loop(None)
        gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is collected is reported by pytest on its own, under the filters of the test."""
    for item in items:
        item.add_marker(
            pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
        )


@pytest.fixture(scope="module")
def desk(
    request: pytest.FixtureRequest,
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    """A worker with the agents of the folder's ``killed`` module."""
    folder = request.path.parent.name
    with a_desk(
        make_world, tmp_path_factory.mktemp("models"), f"tests.adapters.{folder}.killed"
    ) as one:
        yield one
