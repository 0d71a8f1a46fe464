"""What a test tells the models to answer: rules, the answers of each in order, and their faults."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

HOLD_LIMIT = 60.0  #: seconds after which a forgotten hold lets go

Cut = Literal["before", "after", "half"]
Ends = Literal["half", "unfinished", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, or one fault. The default is: well, with words that no test ordered."""

    text: str | None = None  #: the content; "" is an empty one, None one of the service's own
    value: Any = None  #: the content as a value, sent as JSON
    tool_calls: tuple[Mapping[str, Any], ...] = ()  #: each {"name", "arguments", "id" (optional)}
    finish: str | None = None  #: "length" and the like, in OpenAI's words; "none": there is none
    refusal: str | None = None  #: the model says no, in these words
    model: str | None = None  #: the name it answers under; None: the one it was asked for
    tokens: tuple[int, int] | None = None  #: (in, out) of its usage; None: counted
    delay: float = 0.0  #: seconds before there is an answer
    chunk_delay: float = 0.0  #: seconds between two events of a stream
    hold: str | None = None  #: wait for the release of this name, before there is an answer
    status: int = 200  #: from 400 on an error, for which nothing is billed
    code: str | None = None  #: the error's code, "model_not_found" for example
    retry_after: float | None = None  #: the header, in seconds from now
    dated: bool = False  #: the header as an HTTP date
    cut: Cut | None = None  #: the connection breaks before there is an answer, after, or half way
    ends: Ends | None = None  #: a stream that ends in good order and too early, or with an error
    malformed: bool = False  #: status 200, and a body that nobody can read
    polls: int = 1  #: how often a background response is looked at before it is there
    forgotten: bool = False  #: a background response that is unknown when it is looked at

    @property
    def is_lost(self) -> bool:
        """Whether the caller is not to get all of it."""
        return bool(self.cut or self.ends or self.malformed)

    def order(self) -> dict[str, Any]:
        """As it travels."""
        return asdict(self)


def answer_of(order: Mapping[str, Any]) -> Answer:
    """The answer of an order. Raises ``TypeError`` for a field that there is none."""
    tokens = order.get("tokens")
    return Answer(
        **{
            **order,
            "tool_calls": tuple(order.get("tool_calls") or ()),
            "tokens": (int(tokens[0]), int(tokens[1])) if tokens else None,
        }
    )


@dataclass(slots=True)
class Rule:
    """Which requests are meant, and what they are answered."""

    match: str  #: a text of the request; "" means every one
    answers: deque[Answer]
    last: bool = False  #: look at the last message only
    kind: str | None = None  #: one dialect's requests only
    repeats: bool = True  #: the last answer stays, or the rule is over with it

    def fits(self, kind: str, text: str, last: str) -> bool:
        wanted = self.kind in (None, kind) and bool(self.answers)
        return wanted and self.match in (last if self.last else text)

    def next(self) -> Answer:
        stays = self.repeats and len(self.answers) == 1
        return self.answers[0] if stays else self.answers.popleft()


class Script:
    """Rules, of which the newest that fits speaks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(self, order: Mapping[str, Any]) -> None:
        """One more rule. Raises ``KeyError`` or ``TypeError`` for what is none."""
        answers: Iterable[Mapping[str, Any]] = order["answers"]
        rule = Rule(
            match=str(order["match"]), answers=deque(map(answer_of, answers)),
            last=bool(order.get("last")), kind=order.get("kind"),
            repeats=bool(order.get("repeats", True)),
        )  # fmt: skip
        with self._lock:
            self._rules.insert(0, rule)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def take(self, kind: str, text: str, last: str) -> Answer:
        """What the request that has just come is answered."""
        with self._lock:
            found = next((rule for rule in self._rules if rule.fits(kind, text, last)), None)
            return found.next() if found else Answer()


class Gates:
    """Who waits for a test's word, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}

    def wait(self, name: str) -> None:
        """Until a release, or the limit."""
        released = threading.Event()
        with self._lock:
            self._waiting.setdefault(name, []).append(released)
        released.wait(HOLD_LIMIT)

    def held(self, name: str) -> int:
        with self._lock:
            return len(self._waiting.get(name, []))

    def release(self, name: str) -> int:
        """Let all of them go on; how many they were."""
        with self._lock:
            leaving = self._waiting.pop(name, [])
        for released in leaving:
            released.set()
        return len(leaving)


@dataclass(slots=True)
class Ways:
    """How the service treats everybody."""

    requests_per_second: int | None = None  #: more of them are answered 429
    retry_after: float | None = 1.0  #: what such a 429 says, in seconds; None: nothing
    retry_form: Literal["seconds", "date", "mixed"] = "seconds"  #: mixed: every other one is a date
    authorization: str | None = None  #: the key that is let in; None: everybody is
    alternation: bool = True  #: whether two turns of one role in a row are rejected
    withdrawn: list[str] = field(default_factory=list)  #: models that there are no longer
    prices: dict[str, dict[str, float]] = field(
        default_factory=dict
    )  #: as Onward's own price table
