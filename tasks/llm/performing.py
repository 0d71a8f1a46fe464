"""What the actions of ``asking`` do in one step: ask an SDK or a test, judge an answer, call a tool, wait."""

from dataclasses import dataclass
from typing import Any

from tasks.context import Context
from tasks.llm.asking import Accept, Action, Begin, Invoke, Park, Poll, Reject, Send
from tasks.llm.sdks import Sdk, park
from tasks.llm.standing_in import AnswerWith, stand_in
from tasks.recorder import of
from tasks.recorder.scopes import current_path


@dataclass(frozen=True, slots=True)
class Performer:
    """Carries out actions on behalf of a step."""

    ctx: Context
    answer: AnswerWith | None  #: stands in for the models

    def scope(self) -> str:
        """Where the code that asks stands among the scopes of its step."""
        recorder = of(self.ctx)
        return (current_path(recorder.numbering) if recorder is not None else "") or ""

    def perform(self, action: Action) -> Any:
        match action:
            case Accept(reply):
                return reply.taken.accept()
            case Reject(reply, reason):
                return reply.taken.reject(reason)
            case Invoke(tool, request, name):
                return self.ctx.call(tool, request, name=name)
            case _:
                return self._ask(action)

    async def aperform(self, action: Action) -> Any:
        """``perform``, awaited where it takes long."""
        match action:
            case Send(question) if self.answer is None:
                return await Sdk(self.ctx, question.provider).asend(question)
            case Invoke(tool, request, name):
                return await self.ctx.acall(tool, request, name=name)
            case _:
                return self.perform(action)

    def _ask(self, action: Send | Begin | Poll | Park) -> Any:
        match action:
            case Send(question) | Begin(question) if self.answer is not None:
                return stand_in(self.answer, question)
            case Send(question):
                return Sdk(self.ctx, question.provider).send(question)
            case Begin(question):
                return Sdk(self.ctx, question.provider).begin(question)
            case Poll(question, response_id):
                return Sdk(self.ctx, question.provider).poll(question, response_id)
            case Park(delay, why):
                return park(self.ctx, delay, why=why)
