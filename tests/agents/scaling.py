"""A little work with an effect, slow enough that workers come and go while it lasts."""

import time

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import create, note


@step
def fetch(ctx: Context, intent: str) -> str:
    note(ctx)
    time.sleep(0.02)
    return intent


@step
def order(ctx: Context, intent: str) -> str:
    """An effect that would be doubled if the step were run twice."""
    note(ctx)
    time.sleep(0.15)
    return create(ctx, intent, mode="plain")


@step
def confirm(ctx: Context, resource_id: str) -> str:
    note(ctx)
    return resource_id


@workflow("scaling", version="1")
def scaling(intent: str) -> Canvas:
    return fetch.s(intent) | order.s() | confirm.s()
