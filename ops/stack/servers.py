"""The two servers of a home, started, watched and hurt as one thing."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self

from ops.stack import postgres, state, valkey
from ops.stack.errors import StackError
from ops.stack.events import ProcessEvent
from ops.stack.home import Home
from ops.stack.postgres import Postgres
from ops.stack.supervisor import Restart, Supervisor, wait_to_start
from ops.stack.valkey import Valkey

ServerName = Literal["postgres", "valkey"]

#: Everything waits for the servers, and they recover in moments: no long back-off.
RESTART = Restart(first=0.1, longest=5.0)


class Servers:
    """PostgreSQL and Valkey of one home, from entering to leaving the context.

    They come back by themselves as long as someone calls ``poll`` (of the shared supervisor, when
    one is given). Whoever enters holds the home's lock. A server whose URL is given is the user's
    own: it is used, and neither started nor watched.
    """

    def __init__(
        self,
        home: Home | Path | str,
        supervisor: Supervisor | None = None,
        *,
        database_url: str | None = None,
        broker_url: str | None = None,
        postgres_options: Mapping[str, str] | None = None,
        valkey_databases: int = 16,
        on_event: Callable[[ProcessEvent], None] | None = None,
    ) -> None:
        self.home = home if isinstance(home, Home) else Home.at(home)
        self.supervisor = supervisor or Supervisor(on_event)
        self._given_database, self._given_broker = database_url, broker_url
        self._options = dict(postgres_options or {})
        self._databases = valkey_databases
        self._postgres: Postgres | None = None
        self._valkey: Valkey | None = None
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.enter_context(self.home.locked())
            state.end_leftovers(self.home)
            undo.callback(state.forget, self.home)
            undo.callback(self.supervisor.stop_all)
            # Before the ports: a leftover that still holds its port would seem to be a stranger.
            wait_to_start("PostgreSQL", lambda: postgres.is_vacant(postgres.data_of(self.home)))
            wait_to_start("Valkey", lambda: valkey.is_vacant(valkey.data_of(self.home)))
            if self._given_database is None:
                self._postgres = Postgres(self.home, self.home.port("pg"), self._options)
            if self._given_broker is None:
                self._valkey = Valkey(self.home, self.home.port("valkey"), self._databases)
            for server in (self._postgres, self._valkey):
                if server is not None:
                    self.supervisor.start(server.program(), restart=RESTART)
            self.wait_ready()
            self._held = undo.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._held.close()

    @property
    def database_url(self) -> str:
        """For SQLAlchemy, which every part of Onward uses: ``postgresql+psycopg://...``."""
        return self._given_database or self._embedded_postgres().url()

    @property
    def broker_url(self) -> str:
        return self._given_broker or self._embedded_valkey().url

    @property
    def pids(self) -> Mapping[str, int]:
        return self.supervisor.pids

    def database_url_of(self, database: str) -> str:
        """The URL of another database on the same server."""
        return self._embedded_postgres().url(database)

    def poll(self) -> None:
        """Start again what died and is due."""
        self.supervisor.poll()

    def kill(self, name: ServerName) -> None:
        """SIGKILL a server and wait until it is gone."""
        self.supervisor.kill(name)

    def restart(self, name: ServerName) -> None:
        """Stop a server in an orderly way, if it runs, start it and wait until it serves."""
        self.supervisor.restart(name)
        self.wait_ready(name)

    def lose_broker_data(self) -> None:
        """SIGKILL Valkey and throw away every message, as when its disk is lost.

        It comes back empty at the next ``poll`` that finds it due, or by ``restart``.
        """
        self.supervisor.kill(valkey.NAME)
        self._embedded_valkey().wipe()

    def wait_ready(self, *names: ServerName) -> None:
        """Wait until these servers serve, all of ours by default; starts nothing.

        Only those asked for: the other may be down and wait for its turn in ``poll``.
        """
        for name, server in ((postgres.NAME, self._postgres), (valkey.NAME, self._valkey)):
            if server is not None and (not names or name in names):
                self.supervisor.wait_ready(name, server.is_ready)

    def _embedded_postgres(self) -> Postgres:
        if self._postgres is None:
            raise StackError("this stack has not started a PostgreSQL of its own")
        return self._postgres

    def _embedded_valkey(self) -> Valkey:
        if self._valkey is None:
            raise StackError("this stack has not started a Valkey of its own")
        return self._valkey
