"""The same work as plain Celery tasks: what a team has that did not think about crashes.

For comparison only. ``acks_late``, retries, a chain with a chord in it, a Redis result backend; no
journal, no sweep, and a lost answer is a failure that is tried again.

    ONWARD_NAIVE_BROKER_URL=redis://... python -m celery -A examples.contract_review.naive worker
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery, chain, group

from examples.contract_review import registry_client, work
from examples.contract_review.errors import RegistryRefused
from examples.contract_review.llm import unrecorded
from examples.contract_review.values import (
    Conclusion,
    Document,
    Material,
    ObligationsFound,
    Outline,
    Reviewed,
    RisksFound,
)

QUEUE = "naive"
Payload = dict[str, Any]


def _configured(environ: Mapping[str, str] = os.environ) -> Celery:
    broker = environ.get("ONWARD_NAIVE_BROKER_URL", "redis://127.0.0.1:6379/0")
    celery = Celery("naive", broker=broker, backend=environ.get("ONWARD_NAIVE_RESULT_URL", broker))
    celery.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_default_queue=QUEUE,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            # Redis' default of one hour; a comparison that cannot wait sets less.
            "visibility_timeout": float(environ.get("ONWARD_NAIVE_VISIBILITY_TIMEOUT", "3600")),
            "global_keyprefix": "naive:",
        },
        result_backend_transport_options={"global_keyprefix": "naive:"},
        worker_hijack_root_logger=False,
    )
    return celery


app = _configured()


def _task(name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Celery's decorator with a type; Celery publishes none."""
    decorator: Callable[[Callable[..., Any]], Any] = app.task(name=name, **options)
    return decorator


_RETRYING: dict[str, Any] = {
    "autoretry_for": (Exception,),
    "dont_autoretry_for": (RegistryRefused,),
    "max_retries": 4,
    "retry_backoff": True,
}


@_task("naive.read")
def read(uri: str) -> Payload:
    return _plain(work.open_document(uri))


@_task("naive.retrieve")
def retrieve(document: Payload) -> Payload:
    return _plain(work.retrieve(Document.model_validate(document)))


@_task("naive.outline")
def outline(document: Payload) -> Payload:
    return _plain(work.outline(Document.model_validate(document)))


@_task("naive.obligations", **_RETRYING)
def obligations(prepared: list[Payload], run: str) -> Payload:
    material, skeleton = Material.model_validate(prepared[0]), Outline.model_validate(prepared[1])
    ask = unrecorded(run=run, step="obligations")
    return _plain(work.find_obligations(material, skeleton, ask=ask))


@_task("naive.risks", **_RETRYING)
def risks(found: Payload, run: str) -> Payload:
    return _plain(
        work.find_risks(
            ObligationsFound.model_validate(found), ask=unrecorded(run=run, step="risks")
        )
    )


@_task("naive.summary", **_RETRYING)
def summary(found: Payload, run: str) -> Payload:
    return _plain(
        work.summarise(RisksFound.model_validate(found), ask=unrecorded(run=run, step="summary"))
    )


@_task("naive.conclude")
def conclude(reviewed: Payload) -> Payload:
    return _plain(work.conclude(Reviewed.model_validate(reviewed)))


@_task("naive.file", **_RETRYING)
def file(conclusion: Payload, run: str) -> str:
    return registry_client.file_conclusion(Conclusion.model_validate(conclusion), run=run)


def submit(uri: str, *, run: str) -> str:
    """Start the review of one document. ``run`` labels its calls and its filing, nothing more.

    The answer is the id of the last task; who waits for results asks the registry.
    """
    sent = chain(
        read.s(uri),
        group(retrieve.s(), outline.s()),
        obligations.s(run=run),
        risks.s(run=run),
        summary.s(run=run),
        conclude.s(),
        file.s(run=run),
    ).apply_async()
    return str(sent.id)


def _plain(value: Any) -> Payload:
    plain: Payload = value.model_dump(mode="json")
    return plain
