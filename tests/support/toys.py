"""Toy runs, and workers without Celery that move them by hand through the journal's verbs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models.digests import digest_text
from models.ids import new_nonce
from models.journal import expanding, failing, steps, submitting
from models.journal.submitting import Submission, Submitted
from models.journal.values import Carrier, Claimed, Completed, Output
from models.plan import ROOT_BRANCH
from tasks import Context, inputs, step
from tasks.canvas import Canvas, Chain, Signature, chain
from tasks.compile import compile_insertion, compile_plan
from tasks.step import Step
from tasks.workflow import Workflow

FAILURE = {"error_type": "ValueError", "error": "no such clause"}


@step
def work(ctx: Context, *values: Any) -> Any:
    return values


@step(untracked=True)
def blind(ctx: Context, *values: Any) -> Any:
    return values


@step(rate_limit="10/s")
def paced(ctx: Context, *values: Any) -> Any:
    return values


def _toy() -> Canvas:
    return work.s()


TOY = Workflow(
    _toy, name="toy", version="1", extra_steps=(work, blind, paced), extra_queues=("other",)
)


def at(key: str, kind: "Step[..., Any]" = work, *, queue: str | None = None) -> Signature:
    """A step under a key of the test's choice."""
    return kind.s().set(key=key, queue=queue)


def row_of(*keys: str) -> Chain:
    """Steps one after another."""
    return chain(*(at(key) for key in keys))


def submit(
    canvas: Canvas, *, given: str = "{}", workflow: "Workflow[...]" = TOY, **options: Any
) -> Submitted:
    """Submit a toy run with this plan."""
    return submitting.submit(
        Submission(
            workflow="toy",
            version="1",
            interface_digest="interface",
            code_digest="code",
            config_digest="config",
            input=given,
            input_digest=digest_text(given),
            plan=compile_plan(canvas, workflow=workflow),
            **options,
        )
    )


def submit_run(canvas: Canvas, **options: Any) -> str:
    return submit(canvas, **options).run_id


def output(claimed: Claimed, text: str = "null") -> Output:
    """A result as the engine records it."""
    return Output(text, *inputs.digests(claimed, text))


@dataclass
class Worker:
    """One start of a worker, moved by hand through the verbs that the engine would call."""

    name: str = "worker-1"
    start_id: str = "start-1"
    pid: int = 4242

    def carrier(self, task_id: str = "task") -> Carrier:
        return Carrier(self.start_id, self.name, task_id, self.pid, self.pid + 1)

    def claim(
        self,
        run_id: str,
        step_key: str,
        branch: str = ROOT_BRANCH,
        *,
        workflow: str | None = "toy",
        versions: Sequence[str] = ("1",),
    ) -> Claimed | None:
        return steps.claim(
            run_id,
            branch,
            step_key,
            workflow=workflow,
            versions=versions,
            carrier=self.carrier(f"{run_id}:{step_key}"),
            nonce=new_nonce(),
        )

    def take(self, run_id: str, step_key: str, branch: str = ROOT_BRANCH) -> Claimed:
        """Claim what must be there to be claimed."""
        claimed = self.claim(run_id, step_key, branch)
        assert claimed is not None, (run_id, step_key, branch)
        return claimed

    def complete(self, claimed: Claimed, text: str = "null") -> Completed:
        return steps.complete(
            claimed, output(claimed, text), worker=self.name, successor=claimed.successor
        )

    def complete_and_claim(self, claimed: Claimed, text: str = "null") -> Completed:
        return steps.complete_and_claim(
            claimed, output(claimed, text), carrier=self.carrier("in-place"), nonce=new_nonce()
        )

    def then(self, claimed: Claimed, canvas: Canvas, text: str = "null") -> Completed:
        return expanding.complete_with(
            claimed,
            output(claimed, text),
            worker=self.name,
            compile_insertion=lambda taken, planned: compile_insertion(
                canvas,
                workflow=TOY,
                branch=claimed.branch,
                after=inputs.as_node(claimed),
                taken=taken,
                planned=planned,
            ),
        )

    def retry(self, claimed: Claimed, *, delay: float = 0.0) -> None:
        failing.retry(claimed, worker=self.name, delay=delay, **FAILURE)

    def fail(self, claimed: Claimed) -> None:
        failing.fail(claimed, worker=self.name, **FAILURE)

    def interrupt(self, claimed: Claimed, *, crashed: bool = False) -> None:
        failing.interrupt(claimed, worker=self.name, crashed=crashed, **FAILURE)

    def do(self, run_id: str, *step_keys: str, branch: str = ROOT_BRANCH) -> Completed:
        """Claim and complete these steps of one branch, one after another."""
        completed = Completed()
        for step_key in step_keys:
            completed = self.complete(self.take(run_id, step_key, branch), f'"{step_key}"')
        return completed
