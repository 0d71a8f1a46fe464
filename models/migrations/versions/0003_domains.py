"""States are checked where they are assigned, not in every row that is written."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Move the lists of states from tables into domains."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    op.get_bind().connection.cursor().execute(script)
