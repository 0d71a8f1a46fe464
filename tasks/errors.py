"""What an agent's author, or who submits a run, can get wrong; each names the way out.

And what ends an attempt from inside ``ctx.call``: the stop signals.
"""

from typing import ClassVar, TypeVar

from models.errors import OnwardError
from models.states import BlockReason

E = TypeVar("E", bound=BaseException)


class DefinitionError(OnwardError):
    """A step or workflow is written in a way that cannot work; raised at its import."""

    error_type = "definition_error"


class PlanError(OnwardError):
    """A canvas does not make a plan. Nothing was stored."""

    error_type = "plan_refused"


class PlanCircle(PlanError):
    """The plan would come back to a step it has already passed."""

    error_type = "plan_circle"


class PlanTooDeep(PlanError):
    """Groups within groups beyond ``ONWARD_DEPTH_LIMIT``."""

    error_type = "plan_too_deep"


class PlanTooWide(PlanError):
    """A group with more members than ``ONWARD_GROUP_LIMIT``."""

    error_type = "plan_too_wide"


class PlanTooLong(PlanError):
    """More steps than ``ONWARD_PLAN_LIMIT``, those added while running included."""

    error_type = "plan_too_long"


class StepNotRegistered(PlanError):
    """The plan names a step that no worker of its workflow would know."""

    error_type = "step_not_registered"


class BindingError(OnwardError):
    """Values that do not fit the parameters of a step or workflow."""

    error_type = "arguments_mismatch"


class AgentsError(OnwardError):
    """Agent packages could not be loaded, or a name is not among what was loaded."""

    error_type = "agents_error"


class ShadowedPackage(OnwardError):
    """Another module is imported under one of our names."""


class StepExited(RuntimeError):
    """A step called ``sys.exit``, or let a cancellation out: a failure like any other of its errors."""


class CallNameNeeded(OnwardError):
    """A call whose place among the step's calls is not the same after a crash has no name."""

    error_type = "call_name_needed"


class CallNameTaken(OnwardError):
    """Two calls of one step have the same name."""

    error_type = "call_name_taken"


class CallRefused(OnwardError):
    """``ctx.call`` where none can be made: after the body has ended, or inside the step's own transaction."""

    error_type = "call_refused"


class EffectGivenUp(OnwardError):
    """A person abandoned this effect."""

    error_type = "effect_abandoned"


class EffectExhausted(OnwardError):
    """An effect was sent again and again and never arrived."""

    error_type = "effect_exhausted"


class FinalError(OnwardError):
    """A failure that another attempt would only meet again: the step fails at once, whatever its retries."""

    error_type = "final_error"


class UndeclaredEffect(FinalError):
    """A request that may change the outside world, beside the tools. Nothing was sent."""

    error_type = "undeclared_effect"


class CallScopeNeeded(FinalError):
    """Requests whose order is not the same after a crash share a scope. Nothing was sent."""

    error_type = "call_scope_needed"


class AnswerIncomplete(FinalError):
    """A model was asked as often as allowed, and no answer was whole."""

    error_type = "answer_incomplete"

    def __init__(
        self, message: str, *, state: str, text: str = "", counts: bool = True, lost: int = 0
    ) -> None:
        super().__init__(message)
        self.error_type = f"answer_{state}"  # type: ignore[misc] # the state is the word to search for
        self.state = state
        self.text = text  #: what came of it: evidence, never an answer
        self.counts = counts  #: against the limit on asking; False: a person has let the step start anew since
        self.lost = lost  #: how often it was asked for before, by attempts that died


def final_cause(error: BaseException) -> FinalError | None:
    """The final failure that an SDK may have wrapped into an error of its own: ``APIConnectionError``."""
    return cause_of(error, FinalError)


def cause_of(error: BaseException, kind: type[E]) -> E | None:
    """The error itself, or what it was raised from, when that is of this kind."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, kind):
            return link
        seen.add(id(link))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


class Stop(BaseException):
    """Ends the attempt from inside ``ctx.call``.

    Not an ``Exception``: an author's ``except Exception`` around a call must not go on as if nothing were in
    doubt. Whatever the body makes of it, the engine asks the ledger in the end.
    """

    error_type: ClassVar[str]


class EffectUnknown(Stop):
    """An effect may have happened: the world is asked before anything is sent again."""

    error_type = "effect_unknown"


class EffectWithheld(Stop):
    """The run was cancelled, or is being undone: nothing new is sent for it."""

    error_type = "cancelled"


class EffectPostponed(Stop):
    """The tool's rate limit leaves no place soon: the step comes back in ``delay`` seconds."""

    error_type = "throttled"

    def __init__(self, message: str, *, delay: float) -> None:
        super().__init__(message)
        self.delay = delay


class CallPostponed(EffectPostponed):
    """A model endpoint is not to be asked now: the step comes back in ``delay`` seconds, and nothing is counted."""

    error_type = "call_postponed"


class EffectBlocked(Stop):
    """Only a person can say how this effect goes on."""

    error_type = "effect_blocked"

    def __init__(self, message: str, *, reason: BlockReason) -> None:
        super().__init__(message)
        self.reason = reason


class AttemptLost(Stop):
    """The step is not ours any more, or the journal cannot be reached: this attempt writes nothing."""

    error_type = "attempt_lost"
