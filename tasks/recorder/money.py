"""Money and places for one model request: set aside before it leaves, settled by what became of it."""

import time
from dataclasses import dataclass
from decimal import Decimal

from models.journal import endpoints, wallets
from models.journal.call_values import Charge, Exceeded, Place, Reservation
from models.journal.effect_values import Withheld
from models.journal.errors import JournalError
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import budgets, patience, prices
from tasks.errors import EffectBlocked, EffectWithheld
from tasks.recorder.declared import Endpoint
from tasks.recorder.dialects import Wanted
from tasks.recorder.reading import Reading


@dataclass(frozen=True, slots=True)
class Purse:
    """What pays for one attempt's requests."""

    claimed: Claimed

    def worst(self, wanted: Wanted, endpoint: Endpoint) -> prices.Worst:
        """What a request may cost at most. Without a price table that can be read nothing is sent."""
        longest = endpoint.max_output if wanted.max_output is None else wanted.max_output
        try:
            return prices.reserve_for(wanted.model, wanted.tokens_in, longest)
        except prices.PricesError as error:
            raise EffectBlocked(
                f"no model is asked by step {self.claimed.step_key!r}: {error} Correct the table, then `onward runs "
                f"resume {self.claimed.run_id}` goes on from this step",
                reason=BlockReason.BUDGET_EXCEEDED,
            ) from error

    def charge_lost(self) -> None:
        """Charge what earlier attempts had set aside, before anything new is."""
        patience.recorded(
            lambda: wallets.charge_lost(self.claimed), confirmed=lambda: None, stoppable=True
        )

    def reserve(self, reservation: Reservation) -> None:
        """Set aside what a request may cost. Raises what stops the step when a limit forbids it."""
        answer = patience.recorded(
            lambda: wallets.reserve(self.claimed, reservation),
            confirmed=lambda: None,
            stoppable=True,
        )
        if isinstance(answer, Exceeded):
            is_priced = reservation.cost is not None
            raise budgets.refusal(
                answer, self.claimed, model=reservation.model, is_priced=is_priced
            )
        if isinstance(answer, Withheld):
            raise EffectWithheld(
                f"A model call of step {self.claimed.step_key!r} was not made: the run is held ({answer.hold})."
            )

    def release(self, reservation: Reservation) -> None:
        """It cost nothing."""
        patience.recorded(
            lambda: wallets.release(self.claimed, reservation),
            confirmed=lambda: None,
            stoppable=True,
        )

    def charge_all(self, reservation: Reservation, *, started: float) -> None:
        """It may have been worked on, and its answer will not come. The sweep does it when this cannot."""
        spent = Charge(reservation.tokens, reservation.cost, time.monotonic() - started)
        try:
            patience.recorded(
                lambda: wallets.charge(self.claimed, reservation, spent, recovery=True),
                confirmed=lambda: None,
                stoppable=True,
            )
        except JournalError:
            return


def reservation(
    place: Place, worst: prices.Worst, *, model: str | None, token: int | None = None
) -> Reservation:
    """What is set aside for a request. One claim sends at most one for a place, so they need no numbers."""
    return Reservation(
        place=place, send=1, tokens=worst.tokens, cost=worst.cost, model=model, token=token,
        guessed=worst.guessed,
    )  # fmt: skip


def cost(reading: Reading, model: str | None) -> Decimal | None:
    """The price of an answer that says what it took; of the model asked and the one that answered the dearer."""
    if reading.tokens is None:
        return None
    tokens = reading.tokens_in or 0, reading.tokens_out or 0
    known = (prices.cost_of(name, *tokens) for name in (model, reading.model))
    return max((one for one in known if one is not None), default=None)


def charge(reading: Reading, reserved: Reservation, *, started: float) -> Charge:
    """What an answer did cost: at least all that was set aside when it does not say so to its end."""
    seconds = time.monotonic() - started
    if reading.tokens is None and reading.state == "failed":
        return Charge(0, Decimal(0), seconds)  # the service says that it made nothing
    tokens, known = reading.tokens or 0, cost(reading, reserved.model)
    if _says_all(reading):  # a table that has lost its price since is no discount
        return Charge(tokens, reserved.cost if known is None else known, seconds)
    dearer = max((one for one in (known, reserved.cost) if one is not None), default=None)
    return Charge(max(tokens, reserved.tokens), dearer, seconds)


def _says_all(reading: Reading) -> bool:
    """Streams count as they go: one that broke has told of a part only."""
    has_both = reading.tokens_in is not None and reading.tokens_out is not None
    return has_both and reading.state not in ("cut", "malformed")


def place_in_line(endpoint: Endpoint, *, tokens: int, at_most: float) -> float:
    """Seconds until a request may leave under the endpoint's limits; more than ``at_most``: no place was taken."""
    if not endpoint.is_limited:
        return 0.0
    return patience.recorded(
        lambda: endpoints.take(
            endpoint.url, tokens=tokens, requests_per_minute=endpoint.requests_per_minute,
            tokens_per_minute=endpoint.tokens_per_minute, at_most=at_most,
        ),
        confirmed=lambda: None,
        stoppable=True,
    )  # fmt: skip
