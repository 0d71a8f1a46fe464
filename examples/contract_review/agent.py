"""The agent: eight steps, three LLM calls and one effect for each document.

Each step is a thin wrapper over a plain function of ``work.py``; what the wrapper adds is what the
engine knows: the run's labels, progress, and the tool by which the filing happens once.
"""

from examples.contract_review import work
from examples.contract_review.errors import RegistryRefused
from examples.contract_review.llm import STEP_TIME_LIMIT, asker
from examples.contract_review.registry_client import FileConclusion, Filing
from examples.contract_review.values import (
    Conclusion,
    Document,
    Material,
    ObligationsFound,
    Outline,
    Reviewed,
    RisksFound,
)
from tasks import Context, group, step, workflow
from tasks.canvas import Chain

READ_TIME_LIMIT = 120  #: seconds; a PDF of a thousand pages takes about one minute


@step(kind="tool", time_limit=READ_TIME_LIMIT)
def read(ctx: Context, uri: str) -> Document:
    """Extract the text. Not retried: an unreadable file stays unreadable."""
    document = work.open_document(uri)
    ctx.log.info("read %s, %s characters", document.source.title, len(document.text))
    return document


@step(kind="tool")
def retrieve(ctx: Context, document: Document) -> Material:
    """Select the passages that resemble standard clauses."""
    material = work.retrieve(document)
    ctx.progress(len(material.passages), note=f"{len(material.matches)} similar clauses")
    return material


@step(kind="tool")
def outline(ctx: Context, document: Document) -> Outline:
    """Find headings, defined terms and the language."""
    skeleton = work.outline(document)
    ctx.progress(len(skeleton.headings), note=f"language {skeleton.language}")
    return skeleton


@step(kind="llm", max_retries=4, retry_backoff=True, time_limit=STEP_TIME_LIMIT)
def obligations(ctx: Context, prepared: tuple[Material, Outline]) -> ObligationsFound:
    """One LLM call: who is bound to what."""
    material, skeleton = prepared
    return work.find_obligations(material, skeleton, ask=asker(ctx))


@step(kind="llm", max_retries=4, retry_backoff=True, time_limit=STEP_TIME_LIMIT)
def risks(ctx: Context, found: ObligationsFound) -> RisksFound:
    """One LLM call: what departs from the usual."""
    return work.find_risks(found, ask=asker(ctx))


@step(kind="llm", max_retries=4, retry_backoff=True, time_limit=STEP_TIME_LIMIT)
def summary(ctx: Context, found: RisksFound) -> Reviewed:
    """One LLM call: the overall judgement."""
    return work.summarise(found, ask=asker(ctx))


@step
def conclude(ctx: Context, reviewed: Reviewed) -> Conclusion:
    """Check the answers against each other and the document; a violated check is final."""
    conclusion = work.conclude(reviewed)
    ctx.log.info("concluded: rating %s, %s", conclusion.rating, conclusion.recommendation)
    return conclusion


@step(
    kind="write",
    max_retries=6,
    retry_backoff=True,
    dont_autoretry_for=(RegistryRefused,),
)
def file(ctx: Context, conclusion: Conclusion) -> str:
    """File the conclusion. When the answer is lost, the registry is asked before anything is filed again."""
    return ctx.call(FileConclusion(), Filing(run=ctx.run_id, conclusion=conclusion))


@workflow("contract-review", version="2")
def contract_review(uri: str) -> Chain:
    """Review one document and file what was concluded; the result is the filing's id."""
    return (
        read.s(uri)
        | group(retrieve.s(), outline.s())
        | obligations.s()
        | risks.s()
        | summary.s()
        | conclude.s()
        | file.s()
    )
