"""What happened to a run apart from its steps' own rows. Insert-only, written with the change itself."""

from models import database


def record(
    run_id: str, kind: str, *, step_key: str | None = None, token: int | None = None, detail: str = "",
    actor: str = "onward",
) -> None:  # fmt: skip
    """Append one event, in the transaction that is open or in its own."""
    database.fetch(
        "INSERT INTO event (run_id, step_key, token, kind, detail, actor)"
        " VALUES (%(run_id)s, %(step_key)s, %(token)s, %(kind)s, %(detail)s, %(actor)s)",
        {
            "run_id": run_id, "step_key": step_key, "token": token, "kind": kind, "detail": detail,
            "actor": actor,
        },
    )  # fmt: skip
