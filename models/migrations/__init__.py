"""The schema's history, and the one function that brings a database up to date."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

_HERE = Path(__file__).parent


def config(database_url: str) -> Config:
    """Alembic's configuration, without an ini file: the scripts travel with the package."""
    made = Config()
    made.set_main_option("script_location", str(_HERE))
    made.set_main_option("sqlalchemy.url", database_url.replace("%", "%%"))
    return made


def upgrade(database_url: str) -> None:
    """Bring the journal's schema to this version's head. Does nothing when it is there."""
    command.upgrade(config(database_url), "head")


def head() -> str:
    """The revision this code was written for."""
    revision = ScriptDirectory.from_config(config("")).get_current_head()
    assert revision is not None  # noqa: S101 - the package always ships at least one migration
    return revision
