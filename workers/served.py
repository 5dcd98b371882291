"""The lines that one inference process serves, and the choice of the batch that it fires next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pipeline.batching.choice import Offer, most_pressing
from pipeline.batching.feeder import Devices, Feeder
from pipeline.batching.latency import LatencyModel
from pipeline.batching.memory_cap import MemoryCap
from pipeline.batching.rule import LAST_CALL_MARGIN, Ceilings, Fire, Hold, LetGo
from pipeline.flow import Pool, least_s_after
from pipeline.persistence.ledger.claims import count_cases_of
from pipeline.persistence.waiting_line import AnothersTurn, LineView, Waiting, WaitingLine
from workers.wiring import Services

IDLE_LOOK_S = 1.0
"""How often an idle former looks at the line although nobody rang."""


@dataclass(slots=True)
class ServedModel:
    """One model's line and what is known of its cost and its arrivals."""

    reference: str
    line: WaitingLine
    latency: LatencyModel
    cap: MemoryCap
    feeder: Feeder = field(init=False)

    def __post_init__(self) -> None:
        self.feeder = Feeder(self.latency, after_s=least_s_after(Pool.INFERENCE))


@dataclass(frozen=True, slots=True)
class Chosen:
    """A decision to act, with what it was taken on."""

    model: ServedModel
    decision: Fire | LetGo
    waiting: tuple[Waiting, ...]
    """The line as it was seen."""
    held_s: float = 0.0

    @property
    def aboard(self) -> tuple[Waiting, ...]:
        """Who is to run, in the order of the line; the riders last."""
        members = self.decision.members if isinstance(self.decision, Fire) else ()
        return tuple(self.waiting[place] for place in members)

    @property
    def late(self) -> tuple[Waiting, ...]:
        """Who is to be let go."""
        return tuple(self.waiting[place] for place in self.decision.late)


def choose(services: Services, models: Sequence[ServedModel], ceilings: Ceilings, *, device: str, now: float) -> Chosen | float:
    """Look at every line whose turn this device has; return what to do now, or the seconds until the next look.

    Raises
    ------
    Unavailable
        Redis or the ledger is away.
    """
    pause_s = IDLE_LOOK_S
    offers: list[Chosen] = []
    device_count = 1
    for model in models:
        view = model.line.look(device, limit=4 * ceilings.images, now=now)
        if isinstance(view, AnothersTurn):
            pause_s = min(pause_s, view.seconds)
            continue
        others = _others(view, device)
        device_count = max(device_count, 1 + len(others.busy_until) + others.idle_count)
        decision = model.feeder.ask(view.waiting, ceilings.within(model.cap.images), others, now=now, company=partial(_company, services))
        if isinstance(decision, LetGo):
            return Chosen(model, decision, view.waiting)
        if isinstance(decision, Fire):
            offers.append(Chosen(model, decision, view.waiting, model.feeder.held_s(now)))
        elif isinstance(decision, Hold):
            pause_s = min(pause_s, decision.seconds)
    return _best(offers, ceilings, device_count) if offers else pause_s


def _others(view: LineView, device: str) -> Devices:
    busy: Mapping[str, float] = {other: until for other, until in view.busy_until.items() if other != device}
    return Devices(busy, len(view.idle - {device}))


def _company(services: Services, limit: int) -> int:
    """Cases that were admitted and are still being prepared, up to so many."""
    return count_cases_of(services.ledger, Pool.INTAKE, limit=limit)


def _best(offers: Sequence[Chosen], ceilings: Ceilings, device_count: int) -> Chosen:
    if len(offers) == 1:
        return offers[0]
    made = []
    for offer in offers:
        latency, fire = offer.model.latency, offer.decision
        if isinstance(fire, Fire):
            full_s = latency.seconds(ceilings.within(offer.model.cap.images).images)
            made.append(Offer(fire, full_s, LAST_CALL_MARGIN * latency.spread * fire.predicted_s))
    return offers[most_pressing(made, device_count)]
