"""What a step's body sees of the run it belongs to."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from models.ids import idempotency_key
from tasks.budgets import Budget, RunBudget
from tasks.direct import Answer, DirectCalls, DirectHttp
from tasks.errors import CallRefused
from tasks.offered import Calls, Facilities, Http, ReportProgress, require_pure
from tasks.recorder.options import Freshness
from tasks.tool_base import Read, Tool

if TYPE_CHECKING:
    from tasks.llm.llm import LLM
    from tasks.llm.standing_in import AnswerWith

_log = logging.getLogger("onward.step")

Request = TypeVar("Request")
Result = TypeVar("Result")


class Context:
    """The first argument of every step.

    The engine hands in what it does with the lease and with progress, so nothing here knows a
    database or a broker, and a test of a step needs neither: ``Context.for_test()``.
    """

    __slots__ = (
        "_artifact",
        "_budget",
        "_calls",
        "_facilities",
        "_http",
        "_llm",
        "_llm_answer",
        "_log",
        "_report_progress",
        "_require_trust",
        "_session",
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
        calls: Calls,
        http: Http | None = None,
        facilities: Facilities | None = None,
        llm: "AnswerWith | None" = None,
        budget: RunBudget | None = None,
        session: Callable[[], Any] | None = None,
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
        self._calls = calls
        self._http = http or DirectHttp()
        self._facilities = facilities
        self._llm: LLM | None = None
        self._llm_answer = llm
        self._budget = budget
        self._artifact: Any = None
        self._session = session
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines carry run, step and attempt."""
        if self._log is None:
            marks = {"run_id": self.run_id, "step_key": self.step_key, "attempt": self.attempt}
            self._log = logging.LoggerAdapter(_log, marks)
        return self._log

    def call(
        self, tool: Tool[Request, Result], request: Request, *, name: str | None = None
    ) -> Result:
        """Ask the outside world for something, at most once over all attempts of this step.

        The request is written down before it leaves and its result after it came. In another attempt the
        same call, known by its place among the step's calls of this tool or by ``name``, gives the recorded
        result. ``name`` is needed where that place is not fixed: in threads, in ``asyncio.gather``.

        Raises what the tool raised when it did not happen (``Refused``, ``NotSent``). When it may have
        happened, or a person is needed, the attempt ends here; do not catch ``BaseException`` around it.
        """
        result: Result = self._calls.call(tool, request, name=name)
        return result

    async def acall(
        self, tool: Tool[Request, Result], request: Request, *, name: str | None = None
    ) -> Result:
        """``call`` for ``async def`` steps: the loop goes on meanwhile."""
        result: Result = await self._calls.acall(tool, request, name=name)
        return result

    def httpx_client(self, **options: Any) -> Any:
        """An ``httpx2.Client`` whose answers are recorded, for SDKs and hand-written clients that take one.

        Takes what ``httpx2.Client`` takes, and ``freshness=``, ``max_age=`` for what it reads. A request to a
        declared model endpoint, or one that only reads, is sent once over all attempts and its recorded answer
        given afterwards; any other is refused, since it belongs in a tool (``ctx.call``).
        """
        return self._http.client(options)

    def async_httpx_client(self, **options: Any) -> Any:
        """``httpx_client`` for ``async def``: an ``httpx2.AsyncClient``."""
        return self._http.async_client(options)

    def transport(
        self, *, async_: bool = False, library: Literal["httpx2", "httpx"] = "httpx2"
    ) -> Any:
        """The transport under ``httpx_client``, for whoever makes a client of his own."""
        return self._http.transport(async_=async_, library=library)

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Requests made within are numbered by themselves, under this name.

        Needed where their order among the step's others is not the same after a crash: in threads, and in
        tasks that take their work from a queue; one name for each piece of work. Other tasks of
        ``asyncio`` have a scope each by themselves, in the order in which they are created.
        """
        return self._http.scope(name)

    @property
    def llm(self) -> "LLM":
        """Typed questions to a model: ``ctx.llm.ask(Analysis, prompt)``. See ``docs/llm.md``."""
        if self._llm is None:
            from tasks.llm import make  # noqa: PLC0415 - the SDKs are imported where they are used

            self._llm = make(self, answer=self._llm_answer)
        return self._llm

    @property
    def artifact(self) -> Any:
        """Large content kept outside the journal: ``ctx.artifact.put(data, name="scan.pdf")``."""
        if self._artifact is None and self._facilities is None:
            from tasks.artifacts import Artifacts  # noqa: PLC0415 - few steps need them

            self._artifact = Artifacts.for_test()
        elif self._artifact is None:
            self._artifact = self._offered("artifact").artifact(self)
        return self._artifact

    @property
    def budget(self) -> RunBudget:
        """What this run may spend, has spent and has left."""
        if self._budget is None:
            self._budget = self._offered("budget").budget(self)
        return self._budget

    def _offered(self, what: str) -> Facilities:
        if self._facilities is None:
            raise CallRefused(
                f"Step {self.step_key!r} has no ctx.{what} here: Context.for_test(facilities=...) takes what "
                f"offers it."
            )
        return self._facilities

    def read(
        self,
        tool: Tool[Request, Result],
        request: Request,
        *,
        name: str | None = None,
        freshness: Freshness | None = None,
        max_age: timedelta | None = None,
    ) -> Read[Result]:
        """``call`` of a PURE tool, with word of how old its answer is.

        ``freshness`` and ``max_age`` stand in place of what the tool declares: a later attempt is given the
        recorded answer (REPLAY), is told that it is older than ``max_age`` (MARK), or asks again then (REFETCH).
        """
        require_pure(tool)
        wanted = {"freshness": freshness, "max_age": max_age}
        return self._calls.read(tool, request, name=name, wanted=wanted)

    async def aread(
        self,
        tool: Tool[Request, Result],
        request: Request,
        *,
        name: str | None = None,
        freshness: Freshness | None = None,
        max_age: timedelta | None = None,
    ) -> Read[Result]:
        """``read`` for ``async def`` steps: the loop goes on meanwhile."""
        require_pure(tool)
        wanted = {"freshness": freshness, "max_age": max_age}
        return await self._calls.aread(tool, request, name=name, wanted=wanted)

    @property
    def session(self) -> Any:
        """A SQLAlchemy session on the journal's database, in the transaction that completes this step.

        Opened when first used. What is done in it and the step's result are committed together or not at
        all: an error, a lost lease or a crash undoes both, and the body runs again. Its ``commit`` and
        ``rollback`` end a savepoint only. Calls of tools are refused from then on, since they cannot be undone.
        """
        if self._session is None:
            raise CallRefused(
                f"Step {self.step_key!r} has no session here: Context.for_test(session=...) takes one."
            )
        return self._session()

    def enter_task(self) -> None:
        """The asyncio task that calls this is the body's own; the engine does, before an async body."""
        self._calls.enter_task()
        self._http.enter_task()

    @property
    def http(self) -> Http:
        """Who carries its requests; for the engine."""
        return self._http

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Tell whoever watches how far this step is. Not durable, never needed for recovery."""
        self._report_progress(done, total, note)

    def require_trust(self) -> None:
        """Raise ``LeaseLost`` unless this attempt certainly still owns its step."""
        self._require_trust()

    def idempotency_key(self, name: str, ordinal: int | None = None) -> str:
        """The key to send with an effect: the same in every attempt, and after a restore.

        ``name`` tells apart the effects of one step, ``ordinal`` repetitions of one effect. Outside the trust
        window no key is given: the lease may be another worker's by now, and an effect would be started twice.
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
        call: Answer | None = None,
        http: Http | None = None,
        facilities: Facilities | None = None,
        llm: "AnswerWith | None" = None,
        budget: Budget | None = None,
        session: Callable[[], Any] | None = None,
    ) -> Self:
        """A context for calling a step directly: ``read(Context.for_test(), uri)``.

        Its lease is always trusted and progress goes nowhere unless you hand in functions. ``call(tool, request)``
        answers in place of the tools; else they are executed, and nothing is recorded. ``http=DirectHttp(transport=
        ...)`` answers requests; else they are sent. ``llm(question)``: a text, or a value of the schema asked for.
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
            calls=DirectCalls(run_id, step_key, answer=call),
            http=http,
            facilities=facilities,
            llm=llm,
            budget=RunBudget.for_test(budget),
            session=session,
        )


def _nothing(*_: Any) -> None:
    """Accepts whatever a real run would act on."""
