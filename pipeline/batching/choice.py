"""Which of several lines an idle device serves: models and shapes that would all fire now."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.batching.rule import Fire


@dataclass(frozen=True, slots=True)
class Offer:
    """One line's wish to fire."""

    fire: Fire
    full_run_s: float
    """How long a full batch of this line takes."""
    margin_s: float
    """How much longer than predicted its batch may well take."""


def most_pressing(offers: Sequence[Offer], device_count: int) -> int:
    """The place of the offer to take.

    First whose tightest member cannot wait until another device is free, which is after a full run shared by all devices; the
    least leeway of them. Else the line that takes the most waiting away for a second of the device: the sum of what its members have
    waited and will still wait, by what the run takes. Put-off cases for themselves come last.
    """
    next_device_s = max(offer.full_run_s for offer in offers) / max(device_count, 1)

    def rank(place: int) -> tuple[int, float]:
        offer = offers[place]
        leeway_s = offer.fire.slack_s - offer.margin_s
        is_for_put_off = offer.fire.reason == "spare device"
        if not is_for_put_off and leeway_s < next_device_s:
            return 0, leeway_s
        run_s = max(offer.fire.predicted_s, 1e-9)
        return 1 + is_for_put_off, -(offer.fire.waited_s / run_s + len(offer.fire.members))

    return min(range(len(offers)), key=rank)
