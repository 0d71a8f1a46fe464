"""An untracked step whose own queue is a worker of threads'."""

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


@step(queue="llm", untracked=True)
def scrape(ctx: Context) -> str:
    note(ctx)
    return "scraped"


@workflow("scraping", version="1")
def scraping() -> Canvas:
    return scrape.s()
