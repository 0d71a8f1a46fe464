"""Does the database have the journal that this code was written for?"""

from dataclasses import dataclass
from pathlib import Path

import models
from models.errors import OnwardError
from models.journal import overview


class SchemaMismatch(OnwardError):
    """The database's journal is of another version than this code."""

    error_type = "schema_mismatch"


@dataclass(frozen=True, slots=True)
class Schema:
    """The migration a database is at, and the one this code wants."""

    found: str | None
    wanted: str

    @property
    def fits(self) -> bool:
        return self.found == self.wanted

    @property
    def sentence(self) -> str:
        if self.fits:
            return f"The journal's schema is at {self.wanted}, as this version of Onward wants it."
        if self.found is None:
            return f"The database has no journal yet: run `onward db upgrade` (to {self.wanted})."
        if self.found > self.wanted:
            return (
                f"The journal's schema is at {self.found} and this version of Onward knows {self.wanted}: "
                "install the version that upgraded it."
            )
        return f"The journal's schema is at {self.found}, behind {self.wanted}: run `onward db upgrade`."


def look() -> Schema:
    """Compare the connected database with this code."""
    return Schema(overview.schema_revision(), newest())


def newest() -> str:
    """The newest migration of this code, by its file's number.

    Alembic would say the same, and importing it takes longer than the rest of a command.
    """
    scripts = Path(str(models.__file__)).parent / "migrations" / "versions"
    return max(script.name.partition("_")[0] for script in scripts.glob("[0-9]*_*.py"))


def require() -> None:
    """Raise ``SchemaMismatch`` with what to do, unless the two fit."""
    schema = look()
    if not schema.fits:
        raise SchemaMismatch(schema.sentence)
