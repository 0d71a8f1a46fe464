"""Effects: intents, settlements, evidence; compensation and rewinds."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """The statements are in the file beside this one, as a DBA would read them."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    # psycopg itself: SQLAlchemy would look for placeholders in the trigger's message.
    op.get_bind().connection.cursor().execute(script)
