"""kombu's Redis transport with one client per channel instead of one per command, and no MULTI around a delivery.

A client is a shell around its channel's connection pool, without state of its own, yet kombu makes a new
one for every publish, every delivery and every acknowledgement: three a step, 65 us of CPU each, a tenth
of what a hop through the broker costs (measured with redis 8.1).
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis


class QoS(redis.QoS):  # type: ignore[misc]
    """Writes down what was delivered and what was acknowledged in two commands each, where kombu takes four.

    Nothing rests on their being atomic: an entry of the index without its message is dropped when it is due, and
    a message without its entry was acknowledged.
    """

    def pipe_or_acquire(self, pipe: Any = None, client: Any = None) -> AbstractContextManager[Any]:
        if pipe is None:
            pipe = (client or self.channel._create_client()).pipeline(transaction=False)
        return nullcontext(pipe)


class Channel(redis.Channel):  # type: ignore[misc]
    """Keeps its client for as long as it keeps the pool behind it: until a fork or a lost connection."""

    QoS = QoS
    _kept_client: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._kept_client is None or self._kept_client.connection_pool is not self.pool:
            self._kept_client = super()._create_client()
        return self._kept_client


class Transport(redis.Transport):  # type: ignore[misc]
    """kombu's own in everything else."""

    Channel = Channel


def install() -> None:
    """Let ``redis://`` and ``rediss://`` mean this transport in this process."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
