"""What 50 MB cost that do not go through the journal: put, read back and checked, and as a step's result."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from models.artifacts import payloads
from models.artifacts.store import current
from models.digests import digest_text
from models.encoding import encode

SIZE = 50_000_000  #: bytes
_BLOCK = 1_000_000  #: far beyond what the compressor looks back
_WORDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCost:
    """One kind of content; the best of several times, since the disk is shared."""

    name: str
    put: float  #: seconds, until it is whole and durable
    read: float  #: seconds, checked to its end
    cpu: float  #: seconds of one processor, for both
    size: int  #: bytes
    stored: int  #: bytes on the disk


def artifact_costs(*, size: int = SIZE, times: int = 3) -> list[ArtifactCost]:
    """Text, which is compressed, dense bytes, which are not, and a text that a step returns."""
    text, dense = _text(size), _dense(size)
    return [
        _best(lambda: _through_the_store("text", text), times),
        _best(lambda: _through_the_store("dense bytes", dense), times),
        _best(lambda: _as_a_result(text.decode()), times),
    ]


def table(costs: list[ArtifactCost]) -> list[str]:
    """As the page of results shows them."""
    rows = [
        f"| {one.name} | {one.put:.2f} | {one.read:.2f} | {one.cpu:.2f} | {one.stored / 1e6:.1f} |"
        for one in costs
    ]
    return [
        f"{costs[0].size / 1e6:.0f} MB beside the journal, on the checkout's disk:", "",
        "|  | put s | read and checked s | processor s | stored MB |",
        "| --- | --- | --- | --- | --- |", *rows,
    ]  # fmt: skip


def _through_the_store(name: str, content: bytes) -> ArtifactCost:
    store, cpu, began = current(), time.process_time(), time.monotonic()
    stored = store.put(content)
    put = time.monotonic()
    store.verify(stored.digest, size=len(content))
    read = time.monotonic()
    store.forget(stored.digest)
    return ArtifactCost(
        name=name, put=put - began, read=read - put, cpu=time.process_time() - cpu, size=len(content),
        stored=stored.stored_size,
    )  # fmt: skip


def _as_a_result(value: str) -> ArtifactCost:
    """Encoded, digested and moved out as the engine does, and given to the next step."""
    cpu, began = time.process_time(), time.monotonic()
    text = encode(value)
    uploaded = payloads.upload(text)
    digest_text(text)
    put = time.monotonic()
    payloads.load(uploaded.reference.text())
    read = time.monotonic()
    current().forget(uploaded.reference.digest)
    return ArtifactCost(
        name="a step's result", put=put - began, read=read - put, cpu=time.process_time() - cpu,
        size=len(value), stored=uploaded.stored.stored_size,
    )  # fmt: skip


def _best(measure: Callable[[], ArtifactCost], times: int) -> ArtifactCost:
    return min((measure() for _ in range(times)), key=lambda one: one.put + one.read)


def _dense(size: int) -> bytes:
    return hashlib.shake_256(b"onward").digest(size)


def _text(size: int) -> bytes:
    """Words in no order that repeats within what the compressor sees."""
    raw = hashlib.shake_256(b"words").digest(2 * _BLOCK)
    words = [
        hashlib.sha256(str(number).encode()).hexdigest()[: 3 + number % 8]
        for number in range(_WORDS)
    ]
    picked = (int.from_bytes(raw[at : at + 2], "big") % _WORDS for at in range(0, len(raw), 2))
    block = " ".join(words[number] for number in picked).encode()[:_BLOCK]
    return (block * (size // _BLOCK + 1))[:size]
