"""What a step's body sees of the run it belongs to."""

import logging
from collections.abc import Callable
from typing import Any, Self

from models.ids import idempotency_key

_log = logging.getLogger("onward.step")

ReportProgress = Callable[[float, float | None, str | None], None]


class Context:
    """The first argument of every step.

    The engine hands in what it does with the lease and with progress, so nothing here knows a
    database or a broker, and a test of a step needs neither: ``Context.for_test()``.
    """

    __slots__ = (
        "_log",
        "_report_progress",
        "_require_trust",
        "attempt",
        "batch_id",
        "run_id",
        "step_key",
        "version",
        "workflow",
    )

    def __init__(
        self,
        *,
        run_id: str,
        workflow: str,
        version: str,
        step_key: str,
        attempt: int,
        require_trust: Callable[[], object],
        report_progress: ReportProgress,
        batch_id: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.batch_id = batch_id
        self.workflow = workflow
        self.version = version
        self.step_key = step_key
        self.attempt = attempt
        self._require_trust = require_trust
        self._report_progress = report_progress
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines carry run, step and attempt."""
        if self._log is None:
            marks = {"run_id": self.run_id, "step_key": self.step_key, "attempt": self.attempt}
            self._log = logging.LoggerAdapter(_log, marks)
        return self._log

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Tell whoever watches how far this step is. Not durable, never needed for recovery."""
        self._report_progress(done, total, note)

    def idempotency_key(self, name: str, ordinal: int | None = None) -> str:
        """The key to send with an effect: the same in every attempt, and after a restore.

        ``name`` tells apart the effects of one step, ``ordinal`` repetitions of one effect. Outside
        the trust window no key is given: the lease may be another worker's by now, and a new effect
        started here would be started twice.
        """
        self._require_trust()
        return idempotency_key(self.run_id, self.step_key, name, ordinal)

    @classmethod
    def for_test(
        cls,
        *,
        run_id: str = "run-under-test",
        workflow: str = "workflow-under-test",
        version: str = "1",
        step_key: str = "step-under-test",
        attempt: int = 1,
        batch_id: str | None = None,
        require_trust: Callable[[], object] | None = None,
        report_progress: ReportProgress | None = None,
    ) -> Self:
        """A context for calling a step directly: ``read(Context.for_test(), uri)``.

        Its lease is always trusted and progress goes nowhere unless you hand in functions.
        """
        return cls(
            run_id=run_id,
            batch_id=batch_id,
            workflow=workflow,
            version=version,
            step_key=step_key,
            attempt=attempt,
            require_trust=require_trust or _nothing,
            report_progress=report_progress or _nothing,
        )


def _nothing(*_: Any) -> None:
    """Accepts whatever a real run would act on."""
