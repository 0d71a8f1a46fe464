"""A statement prepared on one connection: parameters go out and a row comes back with no cursor in between.

psycopg's cursor decides anew at each execution whether and how to prepare; what every step runs is prepared in
any case. Values are adapted by psycopg both ways. 100 us of client CPU for what completes a step, against 114
through a cursor that is kept.

After a ROLLBACK psycopg deallocates every prepared statement of a connection, whoever prepared it. An unknown
name is therefore no error outside a transaction, where nothing was executed and nothing is lost by preparing
again. Inside one it would abort what came before: statements of transactions go through cursors.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import errors, generators, pq
from psycopg.adapt import PyFormat, Transformer

Row = tuple[Any, ...]

_NAMED = re.compile(r"%\((\w+)\)s|%%")
_numbers = itertools.count()


class Prepared:
    """For the one thread that uses the connection."""

    def __init__(self, link: psycopg.Connection[Any], statement: LiteralString) -> None:
        self._link = link
        self._names: list[str] = []
        self.text = _NAMED.sub(self._place, statement).encode()
        self._values = Transformer(link)
        self._formats = [PyFormat.AUTO] * len(self._names)
        #: Names on the server, by the types of parameters: those of numbers depend on how large they are.
        self._known: dict[tuple[int, ...] | None, bytes] = {}

    def first(self, params: Mapping[str, object]) -> Row | None:
        """Execute it outside a transaction; the first row, if it returns any. Raises psycopg's errors."""
        try:
            return self._execute(params)
        except errors.InvalidSqlStatementName:
            self._known.clear()
            return self._execute(params)

    def _execute(self, params: Mapping[str, object]) -> Row | None:
        values = self._values
        given = values.dump_sequence([params[name] for name in self._names], self._formats)
        types, formats = values.types, values.formats
        with self._link.lock:
            name = self._known.get(types) or self._prepare(types)
            self._link.pgconn.send_query_prepared(name, given, formats)
            result = self._answer()
        if not result.ntuples:
            return None
        values.set_pgresult(result)
        return values.load_row(0, tuple)

    def _prepare(self, types: tuple[int, ...] | None) -> bytes:
        name = f"onward_{next(_numbers)}".encode()
        self._link.pgconn.send_prepare(name, self.text, types)
        self._answer()
        self._known[types] = name
        return name

    def _answer(self) -> "pq.abc.PGresult":
        result: pq.abc.PGresult = self._link.wait(generators.execute(self._link.pgconn))[-1]
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result, encoding=self._link.info.encoding)
        return result

    def _place(self, found: re.Match[str]) -> str:
        """``$1`` for a parameter, the same number wherever it stands again."""
        name = found.group(1)
        if name is None:
            return "%"
        if name not in self._names:
            self._names.append(name)
        return f"${self._names.index(name) + 1}"
