"""What is known of a run's effects apart from the journal: which sends are open, which keys are settled."""

from collections import defaultdict
from typing import Any

from psycopg import sql

from models.journal.effect_values import OpenEffect
from models.journal.values import Claimed
from tests.support.journal import TABLES, Journal


class Book:
    """Kept beside the journal by whoever plays everybody, and held against it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.claims: list[Claimed] = []
        self.looks: list[OpenEffect] = []
        #: By key: the claims whose sends may have happened, with nothing proven since. 0: one that was lost.
        self.open: defaultdict[str, set[int]] = defaultdict(set)
        self.granted: dict[str, int] = {}
        self.counted: dict[str, int] = {}
        self.settled: dict[str, dict[str, Any]] = {}
        self.lookers = 0
        self.run_id = ""

    def check(self) -> None:
        """A settlement stands, a key is open or settled, sends are counted, and nothing open is unknown here."""
        found = self.journal.rows("SELECT * FROM effect_settlement WHERE run_id = %s", self.run_id)
        settled = {row["key"]: row for row in found}
        for key, row in self.settled.items():
            assert settled.get(key) == row, "a settlement changed"
        self.settled = settled
        effects = self.journal.rows("SELECT * FROM effect WHERE run_id = %s", self.run_id)
        assert not {row["key"] for row in effects} & set(settled), "open and settled at once"
        for row in (*effects, *settled.values()):
            key = row["key"]
            assert row["sends"] >= max(self.counted.get(key, 0), self.granted.get(key, 0))
            self.counted[key] = row["sends"]
        for row in effects:
            if row["state"] in ("intended", "unknown"):
                assert self.open[row["key"]], row

    def key(self, name: str) -> str:
        return f"{self.run_id}:{name}"

    def pick_claim(self, pick: int) -> Claimed:
        """Mostly the latest: those before it are displaced, and should be tried too."""
        return self.claims[-1] if pick % 3 else self.claims[pick % len(self.claims)]

    def holds(self, claimed: Claimed) -> bool:
        found = self.journal.rows(
            "SELECT 1 FROM live WHERE run_id = %s AND owner = %s AND lease_expires_at > onward_now()",
            self.run_id,
            claimed.owner,
        )
        return bool(found)

    def known(self, key: str) -> dict[str, Any] | None:
        found = self.journal.rows("SELECT * FROM effect WHERE key = %s", key)
        return found[0] if found else None

    def sent_by(self, key: str, claimed: Claimed) -> bool:
        known = self.known(key)
        return known is not None and (known["state"], known["token"]) == ("intended", claimed.token)

    def clear(self) -> None:
        with self.journal.look.transaction():
            self.journal.look.execute("SET LOCAL onward.retention = 'on'")
            for table in (*TABLES, "rewind"):
                self.journal.look.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
