"""What the broker holds of a message while it is delivered: enough to give it to somebody else."""

from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection

from tasks import transport

QUEUE = "letters"


@pytest.fixture
def channel(broker_url: str) -> Iterator[Any]:
    transport.install()
    with Connection(broker_url) as connection:
        connection.SimpleQueue(QUEUE).put({"to": "whom it may concern"})
        yield connection.channel()


def held(channel: Any) -> tuple[int, int]:
    """(entries of the index, messages) of what is delivered and not acknowledged."""
    client = channel.client
    return client.zcard(channel.unacked_index_key), client.hlen(channel.unacked_key)


def delivered(channel: Any) -> Any:
    message = channel.basic_get(QUEUE, no_ack=False)
    assert message is not None
    return message


def test_what_is_delivered_is_kept_until_it_is_acknowledged(channel: Any) -> None:
    message = delivered(channel)
    assert held(channel) == (1, 1)

    message.ack()

    assert held(channel) == (0, 0)
    assert channel.basic_get(QUEUE) is None


def test_what_is_not_acknowledged_goes_to_somebody_else(channel: Any) -> None:
    message = delivered(channel)

    channel.qos.restore_by_tag(message.delivery_tag)

    assert held(channel) == (0, 0)
    again = channel.basic_get(QUEUE, no_ack=True)
    assert again is not None
    assert again.payload == {"to": "whom it may concern"}


def test_an_entry_whose_message_was_never_written_is_dropped(channel: Any) -> None:
    """As a connection leaves it that breaks between the two commands."""
    message = delivered(channel)
    channel.client.hdel(channel.unacked_key, message.delivery_tag)

    channel.qos.restore_by_tag(message.delivery_tag)

    assert held(channel) == (0, 0)
    assert channel.basic_get(QUEUE) is None
