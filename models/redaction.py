"""Values of secrets that this process has revealed, and their removal from every text that leaves it.

A revealed value is struck out wherever it would be written: ``[secret NAME]`` in its place. The journal's
parameters, log lines, task events and the answers of commands all pass ``redact``, so that a new path need not
be remembered by who writes it. While nothing is revealed that is one look at an empty tuple.

Known are the value itself and the spellings that libraries give it: JSON, ``repr``, URL, HTML, hex, and base64 at
each of its three alignments (``Basic`` credentials hold a user's name before it). A message that was
shortened may end in a part of it, or begin with one: what touches an ellipsis is compared with both ends.
"""

import html
import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 4  #: characters; a shorter one would be struck out of half of every message
_END = 6  #: characters of one end of a value by which it is known next to an ellipsis
_LINE = 16  #: characters of one line of a key that stand for all of it
_MESSAGE = 100_000  #: characters; what is longer is no message that was shortened
_ENCODED = 8  #: characters of an encoded form; fewer occur by chance
_REMEMBERED = 50  #: values of one secret, the newest: tokens rotate

#: As pydantic and we write it, and as SQLAlchemy does.
_ELLIPSIS = re.compile(r"( \.\.\. \([0-9]+ characters truncated\) \.\.\. |\.\.\.|…)")
#: Recorded texts that lie elsewhere or are encrypted: redacted before, and any change would lose them.
_WRAPPED = re.compile(
    r'\{"\$onward-(?:sealed":\{"key":"[0-9a-f]{16}","data":"[\w+/=-]+"|'
    r'artifact":\{"digest":"sha256:[0-9a-f]{64}","size":[0-9]+(?:,"as":"string")?)\}\}'
)
_MARK = r"\[secret [A-Za-z_][\w.-]*\]"

#: Parameters by which rows are found again. Struck out of these, a weak secret would lose the row.
_NAMES = frozenset({
    "run_id", "run_ids", "step_key", "step_keys", "step_name", "branch", "branches", "key", "keys",
    "undo_key", "owner", "owners", "new_owner", "worker", "start_id", "task_id", "batch_id", "wallet_id",
    "submission_key", "queue", "queues", "next_queue", "next_key", "prev_key", "after_key", "after_run",
    "after_branch", "join_key", "joins", "member", "parent", "below", "above", "nonce", "undoes", "workflow",
    "version", "versions", "tool", "tool_version", "throttle", "id", "ids", "kind", "state", "scope",
    "asked", "name", "digest", "pid_space", "system_id",
})  # fmt: skip


class _Known:
    """Everything that was revealed, ready to be looked for."""

    def __init__(self, values: Mapping[str, str], vanishing: str = "") -> None:
        """``values``: value -> name. ``vanishing``: what leaves nothing in its place."""
        self.values = values
        self.names: dict[str, str] = {vanishing: ""} if vanishing else {}
        for value, name in values.items():
            for form in _forms(value):
                self.names.setdefault(form, name)
        self.forms = tuple(sorted(self.names, key=len, reverse=True))
        self._any = re.compile("|".join([_MARK, *map(re.escape, self.forms)]))

    def strike(self, text: str) -> str:
        if any(form in text for form in self.forms):
            text = self._any.sub(self._mark, text)
        if len(text) < _MESSAGE and ("..." in text or "…" in text):
            text = self._without_ends(text)
        return text

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        if not any(form in text for form in self.forms):
            return []
        found = self._any.finditer(text)
        return [(*one.span(), self._mark(one)) for one in found if one[0] in self.names]

    def _mark(self, found: "re.Match[str]") -> str:
        name = self.names.get(found[0])  # None: it is a mark that is there already
        return found[0] if name is None else f"[secret {name}]" if name else ""

    def _without_ends(self, text: str) -> str:
        parts = _ELLIPSIS.split(text)
        for value, name in self.values.items():
            if len(value) < _END:
                continue
            for place in range(0, len(parts), 2):
                if place:
                    parts[place] = _without_tail(parts[place], value, f"[secret {name}]")
                if place < len(parts) - 1:
                    parts[place] = _without_head(parts[place], value, f"[secret {name}]")
        return "".join(parts)


_lock = threading.Lock()
_remembered: dict[str, list[str]] = {}  #: name -> values, newest first
_known: _Known | None = None
_vanishing = ""


def register(name: str, value: str) -> None:
    """From now on ``value`` is struck out of every text of this process."""
    global _known  # noqa: PLW0603 - replaced as a whole, so that readers need no lock
    if _known is not None and value in _known.values:
        return
    with _lock:
        values = _remembered.setdefault(name, [])
        if value in values:
            return
        values.insert(0, value)
        del values[_REMEMBERED:]
        _known = _remember(_vanishing)


def let_vanish(mark: str) -> None:
    """From now on ``mark``, which no other process has, is in no text that leaves this one."""
    global _known, _vanishing
    if _known is None or mark not in _known.names:
        with _lock:
            _vanishing, _known = mark, _remember(mark)


def _remember(mark: str) -> _Known:
    return _Known({text: owner for owner, texts in _remembered.items() for text in texts}, mark)


def forget() -> None:
    """Nothing is known any more. For tests: what was revealed stays secret."""
    global _known, _vanishing
    with _lock:
        _remembered.clear()
        _known, _vanishing = None, ""


def is_active() -> bool:
    """Whether there is anything to strike out."""
    return _known is not None


def redact(text: str) -> str:
    """``text`` without what was revealed; the same object when nothing of it is there.

    JSON stays JSON: a number that is a secret becomes a text there.
    """
    if _known is None:
        return text
    struck = _known.strike(text)
    if struck == text:
        return text
    if _is_json(text) and not _is_json(struck):
        return json.dumps(_struck(_known, json.loads(text)), separators=(",", ":"))
    return struck


def redact_structure(structure: Any) -> Any:
    """The same for dicts, lists and tuples; anything else in them is left alone."""
    return structure if _known is None else _struck(_known, structure, numbers=False)


def redact_params(params: Mapping[str, object]) -> Mapping[str, object]:
    """The parameters of a statement. Those that name things are left alone, and digests."""
    if _known is None:
        return params
    changed = {}
    for name, value in params.items():
        if name in _NAMES or name.endswith("_digest"):
            continue
        safe = _struck(_known, value, numbers=False, text=_recorded)
        if safe is not value:
            changed[name] = safe
    return {**params, **changed} if changed else params


def is_known(text: str) -> bool:
    """Whether a text holds what was revealed, in a form so long that it is there by no accident."""
    return _known is not None and any(
        len(form) >= _ENCODED and form in text for form in _known.forms
    )


def _recorded(text: str) -> str:
    if "$onward-" not in text:
        return redact(text)
    if _WRAPPED.fullmatch(text):
        return text
    if _known is None or not _is_json(text):
        return redact(text)
    structure = json.loads(text)  # a plan, whose nodes hold texts of their own
    safe = _struck(_known, structure, text=_recorded)
    return text if safe is structure else json.dumps(safe, separators=(",", ":"))


def found_in(data: bytes | str) -> str | None:
    """The name of a secret whose value is in there; None when there is none."""
    if _known is None:
        return None
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    found = (
        _known.names[form] for form in _known.forms if form.encode("utf-8", "surrogatepass") in data
    )
    return next(filter(None, found), None)


def spans(text: str) -> list[tuple[int, int, str]]:
    """(start, end, mark) of every value that stands in a text."""
    return [] if _known is None else _known.spans(text)


def longest() -> int:
    """Bytes of the longest form in which anything known is looked for: whoever looks piece by piece
    looks at so many of the piece before again."""
    if _known is None:
        return 1
    return max(len(form.encode("utf-8", "surrogatepass")) for form in _known.forms)


def _struck(
    known: _Known, value: Any, *, numbers: bool = True, text: Callable[[str], str] | None = None
) -> Any:
    kind = type(value)
    if kind is str:
        safe = (text or known.strike)(value)
        return value if safe == value else safe
    if kind is dict:
        changed = {
            _struck(known, key, numbers=numbers, text=text): _struck(known, item, numbers=numbers, text=text)
            for key, item in value.items()
        }  # fmt: skip
        return value if changed == value else changed
    if kind in (list, tuple):
        members = kind(_struck(known, item, numbers=numbers, text=text) for item in value)
        return value if members == value else members
    if numbers and kind in (int, float):
        shown = json.dumps(value)
        safe = known.strike(shown)
        return value if safe == shown else safe
    return value


def _is_json(text: str) -> bool:
    if not text[:1] or text[0] not in '{["-0123456789':
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _without_head(piece: str, value: str, mark: str) -> str:
    """``piece`` without the beginning of ``value`` that it ends in."""
    at = piece.find(value[:_END], max(0, len(piece) - len(value)))
    while at >= 0:
        if value.startswith(piece[at:]):
            return piece[:at] + mark
        at = piece.find(value[:_END], at + 1)
    return piece


def _without_tail(piece: str, value: str, mark: str) -> str:
    """``piece`` without the end of ``value`` that it begins with."""
    at = piece.rfind(value[-_END:], 0, len(value))
    while at >= 0:
        if value.endswith(piece[: at + _END]):
            return mark + piece[at + _END :]
        at = piece.rfind(value[-_END:], 0, at + _END - 1)
    return piece


def _forms(value: str) -> Iterator[str]:
    """Every spelling in which a value is looked for."""
    data = value.encode("utf-8", "surrogatepass")
    ours = json.dumps(value)[1:-1]
    escaped = {ours, ours.replace("/", "\\/")}  # PHP's way, and Go's
    escaped |= {re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", form) for form in escaped}
    written = list(escaped)
    for _ in range(2):  # JSON within JSON: a plan holds arguments, which may be documents
        escaped = {json.dumps(form)[1:-1] for form in escaped}
        written += escaped
    plain = {
        value, value.strip(), " ".join(value.split()), *written,
        json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1], ascii(value)[1:-1], repr(data)[2:-1],
        html.escape(value),
    }  # fmt: skip
    yield from (form for form in plain if len(form) >= SHORTEST)
    lines = value.split() if "\n" in value else []
    yield from (line for line in lines if len(line) >= _LINE and not line.startswith("-"))
    urls = {quote(data, safe=""), quote(data), quote_plus(data)}
    urls |= {quote(form, safe="") for form in urls}  # an address within an address
    urls |= {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in urls}
    encoded = {data.hex(), data.hex().upper(), *_base64(data)}
    yield from (form for form in urls | encoded if len(form) >= _ENCODED)


def _base64(data: bytes) -> Iterator[str]:
    """What base64 makes of it whatever stands before and after it."""
    for before in range(3):
        padded = b"\0" * before + data
        first = (0, 2, 3)[before]  # characters that hold bits of what stands before
        last = None if len(padded) % 3 == 0 else -1  # and of what follows
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(padded).decode().rstrip("=")[first:last]
