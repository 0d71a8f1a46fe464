"""Asking an HTTP API what became of a request: one GET, or a list in pages."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from tasks.errors import DefinitionError
from tasks.toolkit import exchange
from tasks.toolkit.exchange import Answer, Call, Unreadable
from tasks.toolkit.templates import Missing, Template, UrlTemplate, Values, at, spelled
from tasks.tools import Undecided

if TYPE_CHECKING:
    import httpx2

_NAMED = 10  #: ids in a message
_REDIRECTS = 5


class LookUpFailed(Exception):
    """The look-up gave no answer that says anything. ``retry_after``: seconds it was asked to wait."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class NextLink:
    """The address of the next page is in the answer's body, at a path; null or missing at the end."""

    at: str = "next"


@dataclass(frozen=True, slots=True)
class LinkHeader:
    """The address of the next page is in the ``Link`` header, as ``rel="next"``."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The answer's body has a cursor, which goes into a parameter of the next request."""

    at: str = "next_cursor"
    parameter: str = "cursor"


@dataclass(frozen=True, slots=True)
class PageNumber:
    """Pages are counted in a parameter; the end is an empty page."""

    parameter: str = "page"
    first: int = 1


Paging: TypeAlias = NextLink | LinkHeader | Cursor | PageNumber


@dataclass(frozen=True, kw_only=True)
class LookUp:
    """How to ask whether it happened.

    A list: ``LookUp(url="https://host/orders?reference={key}", items="data", match={"reference": "{key}"})``.
    ``match`` is compared here, item by item, whatever the service filters by: a search for ``a-1`` that also
    finds ``a-10`` finds one. All pages are read, since one match on the first does not exclude a second.

    One resource: ``LookUp(url="https://host/orders/{key}")``; 404 means that nothing is there. For a list, 404
    means that the look-up failed, unless ``nothing={404}``: a wrong address must not read as "it did not happen".
    """

    url: str
    items: str | None = (
        None  #: path of the list, "" for the whole answer; None: the answer is the item
    )
    match: Mapping[str, str] = field(default_factory=dict)  #: path in an item -> what must be there
    paging: Paging | None = None
    page_limit: int = 100
    nothing: Collection[int] | None = None  #: statuses that mean that nothing is there
    result_at: str = ""  #: path of the result in an item
    status: str | None = None  #: path of the field that says how far an item is
    pending: Collection[str] = ("provisioning", "pending", "processing")  #: not settled yet
    undone: Collection[str] = ("cancelled", "canceled", "deleted")  #: undone, and still visible
    again_in: float = 5.0  #: seconds until a pending one is looked at again


class Looker:
    """A look-up ready to be made."""

    def __init__(
        self, asked: LookUp, *, owner: str, headers: Mapping[str, Template], id_at: str
    ) -> None:
        self.asked, self._owner, self._id_at = asked, owner, id_at
        self._url = UrlTemplate(asked.url, owner=owner)
        self._match = {
            path: Template(text, owner=owner) for path, text in dict(asked.match).items()
        }
        self._headers = headers
        self._nothing = asked.nothing if asked.nothing is not None else self._usual_nothing()
        if asked.items is not None and not asked.match:
            raise DefinitionError(
                f'{owner}: a look-up in a list says which item is meant: match={{"reference": "{{key}}"}}'
            )
        if asked.items is None and asked.paging is not None:
            raise DefinitionError(f"{owner}: a look-up of one resource has no pages")

    @property
    def fields(self) -> frozenset[str]:
        """Everything of the request that it needs."""
        templates = [*self._match.values(), *self._headers.values()]
        return self._url.fields.union(*(template.fields for template in templates))

    def find(
        self, client: "httpx2.Client", values: Values, *, seconds: float
    ) -> list[Any] | Undecided:
        """What matches, each once. Raises ``LookUpFailed`` when the service does not say."""
        wanted = {path: template.plain(values) for path, template in self._match.items()}
        found: dict[str, Any] = {}
        try:
            for page in self._pages(client, values, seconds=seconds):
                if isinstance(page, Undecided):
                    return self._cut_short(page, found)
                found |= {self.name_of(one): one for one in page if _matches(one, wanted)}
        except Unreadable as error:
            raise LookUpFailed(
                f"GET {self._url.text} gave an answer that is of no use: {error}"
            ) from error
        return list(found.values())

    def is_pending(self, item: Any) -> bool:
        return self._state(item) in self.asked.pending

    def is_undone(self, item: Any) -> bool:
        return self._state(item) in self.asked.undone

    def name_of(self, item: Any) -> str:
        """The id of an item, or what tells it apart when it has none."""
        try:
            return spelled(at(item, self._id_at), self._id_at)
        except (Missing, ValueError):
            return json.dumps(item, sort_keys=True)[:200]

    def several(self, items: list[Any]) -> Undecided:
        """One was looked for, and this is more."""
        return Undecided(f"{len(items)} resources match, not one: {self._names(items)}")

    def _names(self, items: list[Any]) -> str:
        shown = [self.name_of(one) for one in items[:_NAMED]]
        return ", ".join(shown) + (f" and {len(items) - _NAMED} more" if items[_NAMED:] else "")

    def _state(self, item: Any) -> str | None:
        try:
            return None if self.asked.status is None else str(at(item, self.asked.status))
        except Missing:
            return None

    def _usual_nothing(self) -> Collection[int]:
        return (404,) if self.asked.items is None else ()

    def _pages(
        self, client: "httpx2.Client", values: Values, *, seconds: float
    ) -> Iterator[list[Any] | Undecided]:
        """Page by page; an ``Undecided`` when the service says something else than items."""
        headers = {name: template.header(values) for name, template in self._headers.items()}
        url, paging = self._url.url(values), self.asked.paging
        variables = set(self._url.variables).union(*(t.variables for t in self._headers.values()))
        hidden = tuple(values.secrets(iter(sorted(variables))))
        seen = {url}
        if isinstance(paging, PageNumber):
            url = _with(url, paging.parameter, str(paging.first))
        for number in range(self.asked.page_limit):
            call = Call("GET", url, f"GET {self._url.text}", headers, hidden=hidden)
            answer = _get(client, call, seconds=seconds)
            items = self._items(answer)
            yield items
            if isinstance(items, Undecided) or paging is None:
                return
            following = _next(paging, answer, number + 1 if items else None)
            if following is None:
                return
            if following in seen:
                raise LookUpFailed(f"the pages of GET {self._url.text} lead in a circle")
            seen.add(following)
            url = following
        yield Undecided(
            f"GET {self._url.text} has more than {self.asked.page_limit} pages, and the rest was not read: "
            "raise page_limit, or let the service filter"
        )

    def _items(self, answer: Answer) -> list[Any] | Undecided:
        if answer.status in self._nothing:
            return []
        if answer.status == 410:
            return Undecided(f"{answer.call.what} was answered 410: it was there, and is gone")
        if not 200 <= answer.status < 300:
            raise LookUpFailed(
                f"{answer.call.what} was answered {answer.status}: {answer.excerpt}",
                retry_after=answer.retry_after,
            )
        body = answer.json()
        if self.asked.items is None:
            if not isinstance(body, dict):
                raise Unreadable(f"it is not an object: {answer.excerpt}")
            return [body]
        try:
            items = at(body, self.asked.items)
        except Missing as error:
            raise Unreadable(f"it has no list at {self.asked.items!r}: {error}") from None
        if not isinstance(items, list):
            raise Unreadable(f"{self.asked.items!r} is not a list")
        return items

    def _cut_short(self, said: Undecided, found: Mapping[str, Any]) -> Undecided:
        if not found:
            return said
        return Undecided(f"{said.reason}; until then it found {self._names(list(found.values()))}")


def _get(client: "httpx2.Client", call: Call, *, seconds: float) -> Answer:
    """A GET that follows redirects on its own host: its headers may hold a secret of that host."""
    for _ in range(_REDIRECTS):
        answer = exchange.send(client, call, seconds=seconds)
        where = answer.headers.get("location")
        if answer.status not in (301, 302, 303, 307, 308) or not where:
            return answer
        call = Call("GET", _same_host(call.url, where), call.what, call.headers, hidden=call.hidden)
    raise LookUpFailed(f"{call.what} was redirected {_REDIRECTS} times")


def _next(paging: Paging, answer: Answer, number: int | None) -> str | None:
    """The address of the page after this one. ``number``: how many were read; None: this was empty."""
    match paging:
        case PageNumber():
            if number is None:
                return None
            return _with(answer.call.url, paging.parameter, str(paging.first + number))
        case LinkHeader():
            link = next(_links(answer.headers.get("link", "")), None)
        case NextLink():
            link = _text_at(answer.json(), paging.at)
        case Cursor():
            cursor = _text_at(answer.json(), paging.at)
            return cursor and _with(answer.call.url, paging.parameter, cursor)
    return link and _same_host(answer.call.url, link)


def _links(header: str) -> Iterator[str]:
    for link in header.split(","):
        target, _, parameters = link.partition(";")
        if 'rel="next"' in parameters or "rel=next" in parameters:
            yield target.strip().strip("<>")


def _text_at(body: Any, path: str) -> str | None:
    """A link or cursor; null, missing, empty and false all mean the end."""
    try:
        found = at(body, path)
    except Missing:
        return None
    return spelled(found, path) if found not in (None, "", False) else None


def _with(url: str, parameter: str, value: str) -> str:
    parts = urlsplit(url)
    query = [
        pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != parameter
    ]
    return urlunsplit(parts._replace(query=urlencode([*query, (parameter, value)])))


def _same_host(url: str, link: str) -> str:
    there = urljoin(url, link)
    if urlsplit(there)[:2] != urlsplit(url)[:2]:
        raise LookUpFailed(
            f"the answer leads to another host, {urlsplit(there).netloc}: that is not followed, since the "
            "headers may hold a secret of this one"
        )
    return there


def _matches(item: Any, wanted: Mapping[str, str]) -> bool:
    for path, text in wanted.items():
        try:
            if spelled(at(item, path), path) != text:
                return False
        except (Missing, ValueError):
            return False
    return True
