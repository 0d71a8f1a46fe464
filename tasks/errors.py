"""What an agent's author, or who submits a run, can get wrong; each names the way out."""

from models.errors import OnwardError


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
