"""A table of an author's own in the journal's database, and bodies that write to it in ``ctx.session``."""

from collections.abc import Callable

from sqlalchemy import String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from models.ids import new_nonce
from models.journal import steps
from models.journal.values import Claimed, Completed
from tasks.transactional import Transaction
from tests.support.journal import Journal, Worker


class Base(DeclarativeBase):
    pass


class Booking(Base):
    """A table of the author's own, in the journal's database."""

    __tablename__ = "booking"

    name: Mapped[str] = mapped_column(String, primary_key=True)
    amount: Mapped[int]


def create_table(journal: Journal) -> None:
    journal.look.execute(
        "CREATE TABLE booking (name text PRIMARY KEY, amount bigint NOT NULL,"
        " parent text REFERENCES booking DEFERRABLE INITIALLY DEFERRED)"
    )


def booked(journal: Journal) -> list[str]:
    return [row["name"] for row in journal.rows("SELECT name FROM booking ORDER BY name")]


def book(session: Session, name: str = "one") -> None:
    session.execute(insert(Booking).values(name=name, amount=1))


class Body:
    """One attempt whose body opens its session, and what it leads to."""

    def __init__(self, claimed: Claimed) -> None:
        self.claimed = claimed
        self.barred: list[str] = []
        self.transaction = Transaction(claimed, bar=self.barred.append)
        self.nonce = new_nonce()

    def run(self, *acts: Callable[[Session], object]) -> None:
        self.transaction.run(lambda: [act(self.transaction.session()) for act in acts])

    def write(self) -> Completed:
        return Worker().complete(self.claimed, '"done"')

    def complete(self, write: Callable[[], Completed] | None = None) -> Completed:
        def confirmed() -> Completed | None:
            return steps.led_to(self.claimed, carrier=Worker().carrier(), nonce=self.nonce)

        return self.transaction.complete(write or self.write, confirmed=confirmed)
