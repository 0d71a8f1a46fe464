"""What these agents can do: look up where an order is, and open a ticket about it."""

from datetime import timedelta

from pydantic import BaseModel

from tasks.toolkit.http import HttpTool
from tasks.tools import Effect

INSTRUCTIONS = (
    "You answer customers of a mail-order house. Open a ticket for every order that is lost."
)


class Order(BaseModel):
    """Which order is meant."""

    order: str


class Ticket(BaseModel):
    """A ticket about an order."""

    order: str
    text: str


#: The desk honours the key for a day, so a ticket is opened once, whatever is killed.
open_ticket = HttpTool(
    "desk.open_ticket",
    effect=Effect.IDEMPOTENT,
    key_retention=timedelta(days=1),
    url="${DESK_URL}/{order}",
    request=Ticket,
)


def look_up(order: str) -> str:
    """Where an order is."""
    return f"Order {order} left the warehouse three weeks ago and has not arrived."
