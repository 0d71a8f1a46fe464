"""${message}"""

from alembic import op

revision = "${up_revision}"
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Expand first: the old code must run on the new schema."""
    ${upgrades if upgrades else "..."}
