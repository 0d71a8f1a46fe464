"""Untracked steps that are sent to a worker of threads: by their own queue, and by a plan."""

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


@step(queue="llm", untracked=True)
def scrape(ctx: Context) -> str:
    note(ctx)
    return "scraped"


@step(untracked=True)
def astray(ctx: Context) -> str:
    note(ctx)
    return "done"


@workflow("scraping", version="1")
def scraping() -> Canvas:
    return scrape.s()


@workflow("straying", version="1")
def straying() -> Canvas:
    return astray.s().set(queue="llm")
