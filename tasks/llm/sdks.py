"""The SDKs of the providers, over the recorder's transport. Imported when first used.

Retries of the SDKs are off: the recorder knows what may be sent again, and when.
"""

import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from models.secret import Secret
from models.settings import settings
from tasks.context import Context
from tasks.errors import CallPostponed, final_cause
from tasks.llm import chat, claude, responses
from tasks.llm.asking import Forgotten
from tasks.llm.errors import NotConfigured
from tasks.llm.events import Deltas, whole
from tasks.llm.values import Question, Reply, Unrecorded
from tasks.recorder import CallOptions, Told, asking, of

#: Where a provider's key is looked for when ``ONWARD_LLM_KEY`` names no secret.
_USUAL_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_NOT_FOUND = 404
_NO_KEY = "none"  #: for endpoints of one's own, which want none


@dataclass(frozen=True, slots=True)
class Sdk:
    """One provider's SDK, in one step."""

    ctx: Context
    provider: str

    def send(self, question: Question) -> Reply:
        """Ask; returns the answer from the record, or once it is on record."""
        with asking(_options(question)) as told:
            try:
                with self.client(async_=False) as client:
                    create = _create(self.provider, client)
                    answer = create(**_arguments(create, question))
                    if told.incoming is None and question.on_chunk is not None:
                        answer = _wire(self.provider).gathered(one.model_dump() for one in answer)
            except Exception as error:
                raise _ours(error) from error
        return self._reply(answer, told)

    async def asend(self, question: Question) -> Reply:
        """``send``, awaited."""
        with asking(_options(question)) as told:
            try:
                async with self.client(async_=True) as client:
                    create = _create(self.provider, client)
                    answer = await create(**_arguments(create, question))
                    if told.incoming is None and question.on_chunk is not None:
                        events = [one.model_dump() async for one in answer]
                        answer = _wire(self.provider).gathered(events)
            except Exception as error:
                raise _ours(error) from error
        return self._reply(answer, told)

    def begin(self, question: Question) -> Reply:
        """Have it answered in the background."""
        with asking(_options(question)) as told:
            try:
                with self.client(async_=False) as client:
                    create = client.responses.create
                    asked = _known(create, responses.payload(question), question)
                    answer = create(**asked)
            except Exception as error:
                raise _ours(error) from error
        return responses.reply(_plain(answer, told), told.incoming or Unrecorded())

    def poll(self, question: Question, response_id: str) -> Reply:
        """How a background answer stands."""
        with asking(_options(question)) as told:
            try:
                with self.client(async_=False) as client:
                    answer = client.responses.retrieve(response_id)
            except Exception as error:
                if getattr(error, "status_code", None) == _NOT_FOUND:
                    raise Forgotten(response_id) from error
                raise _ours(error) from error
        return responses.reply(_plain(answer, told), told.incoming or Unrecorded())

    def client(self, *, async_: bool) -> Any:
        """The SDK's client for one question, over connections that the process keeps."""
        return _client(self.ctx, self.provider, async_=async_)

    def _reply(self, answer: Any, told: Told) -> Reply:
        wire = _wire(self.provider)
        plain = _plain(answer, told, gathered=wire.gathered)
        reply: Reply = wire.reply(plain, told.incoming or Unrecorded())
        return reply


def _plain(
    answer: Any, told: Told, *, gathered: Callable[..., dict[str, Any]] = lambda _: {}
) -> Mapping[str, Any]:
    """What came, as it is on record; where nothing is recorded, as the SDK has read it."""
    if told.incoming is not None:
        return whole(told.incoming.headers, told.incoming.body, gathered)
    plain: Mapping[str, Any] = answer if isinstance(answer, Mapping) else answer.model_dump()
    return plain


def park(ctx: Context, delay: float, *, why: str) -> None:
    """Send the step back for a while; where no run is, wait here."""
    recorder = of(ctx)
    if recorder is None:
        time.sleep(delay)
        return
    raise recorder.ledger.note(
        CallPostponed(f"Step {ctx.step_key!r} of run {ctx.run_id} waits: {why}.", delay=delay)
    )


def _wire(provider: str) -> Any:
    return {"openai": chat, "anthropic": claude}[provider]


def _create(provider: str, client: Any) -> Callable[..., Any]:
    create: Callable[..., Any] = (
        client.messages.create if provider == "anthropic" else client.chat.completions.create
    )
    return create


def _arguments(create: Callable[..., Any], question: Question) -> dict[str, Any]:
    return _known(create, _wire(question.provider).payload(question), question)


def _known(create: Callable[..., Any], asked: dict[str, Any], question: Question) -> dict[str, Any]:
    """What the SDK is called with: parameters that it does not know go into the body as they are."""
    known = inspect.signature(create).parameters
    unknown = {name: asked.pop(name) for name in [*asked] if name not in known}
    if unknown:
        asked["extra_body"] = {**unknown, **(asked.get("extra_body") or {})}
    return asked | ({"extra_headers": dict(question.headers)} if question.headers else {})


def _options(question: Question) -> CallOptions:
    """One ask at a time, since those after a rejected answer are worded differently."""
    on_chunk = question.on_chunk
    return CallOptions(
        max_asks=1,
        accept_length=question.accept_length,
        pin=question.pin or question.model,
        on_chunk=None if on_chunk is None else Deltas(_wire(question.provider).delta, on_chunk),
        give_verdict=True,
    )


def _ours(error: Exception) -> Exception:
    """What was raised below the SDK, which wraps everything into an error of its own."""
    return final_cause(error) or error


def _client(ctx: Context, provider: str, *, async_: bool) -> Any:
    sdk = _imported(provider)
    kind = {"openai": "OpenAI", "anthropic": "Anthropic"}[provider]
    make_http = ctx.async_httpx_client if async_ else ctx.httpx_client
    timeout = settings().llm_timeout
    return getattr(sdk, f"Async{kind}" if async_ else kind)(
        base_url=base_url(provider),
        api_key=_key(provider),
        timeout=timeout,
        max_retries=0,
        http_client=make_http(timeout=timeout),
    )


def base_url(provider: str) -> str | None:
    """Where a provider is asked; None: at its own address."""
    url = settings().llm_base_url if provider == settings().llm_provider else ""
    if provider == "anthropic":
        url = url.removesuffix("/v1")  # its SDK adds it
    return url or {"openai": "https://api.openai.com/v1", "anthropic": None}[provider]


def _key(provider: str) -> str:
    """A placeholder that the recorder fills in, in the header it goes out in: no client here ever holds the key."""
    name = settings().llm_key if provider == settings().llm_provider else ""
    usual = _USUAL_KEYS[provider]
    if not name and any(os.environ.get(one) for one in (f"ONWARD_SECRET_{usual}", usual)):
        name = usual
    return Secret(name).placeholder if name else _NO_KEY


def _imported(provider: str) -> ModuleType:
    try:
        return import_module(provider)
    except ModuleNotFoundError as error:
        if error.name != provider:
            raise
        raise NotConfigured(
            f"ctx.llm asks models of {provider} with its SDK, which is not installed where this worker runs: "
            f"pip install 'onward[{provider}]', then `onward runs retry`."
        ) from None
