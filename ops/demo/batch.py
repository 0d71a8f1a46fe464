"""Submitting the demo's documents as one batch."""

from collections.abc import Sequence
from contextlib import suppress

from examples.contract_review.corpus import SIZE, default_uris
from models.ids import new_nonce
from models.journal import history, runs, submitting
from models.journal.errors import Refused

WORKFLOW = "contract-review"


def documents(count: int) -> Sequence[str]:
    """The first documents of the corpus."""
    return default_uris()[:count]


def submit(batch_id: str, uris: Sequence[str]) -> int:
    """Make every run of the batch that is not there yet, and say how many that were.

    Keyed by batch and document: a submission that was cut short is repeated as a whole.
    """
    # The app takes its broker's address from the environment when it is imported.
    from tasks.celery import app  # noqa: PLC0415
    from tasks.starting import start_run  # noqa: PLC0415

    submitting.create_batch(batch_id, f"demo of {len(uris)} documents")
    made = [
        start_run(app, WORKFLOW, {"uri": uri}, key=f"{batch_id}:{uri}", batch_id=batch_id)
        for uri in uris
    ]
    return sum(one.created for one in made)


def cancel(batch_id: str) -> None:
    """Stop every run of a batch for good; what is finished stays as it is."""
    for run in history.list_runs(batch_id=batch_id, limit=SIZE):
        with suppress(Refused):  # completed
            runs.cancel(
                run.run_id, by="onward demo", reason="another demo was started with --new",
                cancellation_id=f"cancel-{new_nonce()}",
            )  # fmt: skip
