"""Alembic's entry: one online migration under a lock timeout, so that it never queues behind a long reader."""

from alembic import context
from sqlalchemy import create_engine, pool, text

from models import call_rows, effect_rows, operation_rows  # noqa: F401 - they register their tables
from models.rows import Base

#: Two `onward up` at once must not migrate twice; any fixed number of ours will do.
MIGRATION_LOCK = 0x6F6E7761


def run() -> None:
    """Apply what is missing in one transaction."""
    url = context.config.get_main_option("sqlalchemy.url")
    assert url is not None  # noqa: S101 - set by models.migrations.config
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=Base.metadata)
        with context.begin_transaction():
            connection.execute(text("SET LOCAL lock_timeout = '10s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
            context.run_migrations()
    engine.dispose()


run()
