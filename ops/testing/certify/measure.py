"""The run without faults: where it can be hurt, and what everything later is held against."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from models.journal.history import StepView
from ops.testing.certify.counting import is_undeclared, subjects_of
from ops.testing.certify.faults import Request, Surface
from ops.testing.certify.judging import Witnessed
from ops.testing.certify.observing import EffectSeen
from ops.testing.certify.records import Exchange
from ops.testing.certify.report import Undeclared
from tasks import registry
from tasks.tools import tool_named


@dataclass(frozen=True, slots=True)
class Measure:
    """What the run without faults did."""

    run_id: str
    seconds: float
    steps: Sequence[StepView]
    effects: Sequence[EffectSeen]
    exchanges: Sequence[Exchange]
    unseen: Collection[tuple[str, str]] = ()  #: (step, address) of traffic that nobody saw
    counted: Mapping[str, int] = field(default_factory=dict)

    def witnessed(self, reads: Collection[str]) -> Witnessed:
        """What it changed outside."""
        known = {effect.name: effect.subject for effect in self.effects}
        return Witnessed(
            subjects_of(self.exchanges, known, reads=reads), self.effects, self.counted
        )

    def longest_window(self) -> tuple[float, str]:
        """Seconds until the last of its tools may be believed to have done nothing, and that tool."""
        promises = {effect.tool: tool_named(effect.tool).promise for effect in self.effects}
        windows = ((one.absent_after or one.timeout, name) for name, one in promises.items())
        return max(windows, default=(0.0, ""))

    def slowest_rate(self) -> float:
        """Seconds between two runs that the rate limits of its tools and steps leave, at least."""
        rates = [tool_named(effect.tool).per_second for effect in self.effects]
        rates += [registry.step_named(step.step_name).options.rate_limit for step in self.steps]
        return max((1 / rate for rate in rates if rate), default=0.0)


def surfaces(measure: Measure) -> list[Surface]:
    """Where each step can be hurt, in the order of the plan."""
    return [
        Surface(
            step.step_key,
            tuple(effect.name for effect in measure.effects if effect.step_key == step.step_key),
            tuple(
                (exchange.effect, _request(exchange))
                for exchange in measure.exchanges
                if exchange.step_key == step.step_key and exchange.via in ("step", "execute")
            ),
        )
        for step in measure.steps
    ]


def undeclared(measure: Measure, reads: Collection[str]) -> tuple[Undeclared, ...]:
    """Traffic of steps that no tool had to do with, each kind once."""
    untracked = {step.step_key for step in measure.steps if step.untracked}
    sent = Counter(
        (exchange.step_key, f"{exchange.method} {exchange.host}{exchange.path}")
        for exchange in measure.exchanges
        if is_undeclared(exchange, reads)
    )
    read = [Undeclared(step, what, step in untracked) for step, what in sorted(sent)]
    hidden = [
        Undeclared(step, at, step in untracked, seen=False) for step, at in sorted(measure.unseen)
    ]
    return (*read, *hidden)


def _request(exchange: Exchange) -> Request:
    return Request(exchange.method, exchange.host, exchange.occurrence, exchange.path)
