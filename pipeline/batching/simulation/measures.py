"""What a rule did with a stream of images, in figures."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pipeline.batching.simulation.house import Fates, answered_in_s
from pipeline.batching.simulation.workload import Image
from pipeline.flow import Lane


@dataclass(frozen=True, slots=True)
class Figures:
    """One rule in one scenario. Times are from sending to the answer, of images that got a full one, unless said otherwise."""

    p50_s: float
    p95_s: float
    p99_s: float
    missed_percent: float
    """Late, refused or put off."""
    in_time_per_s: float
    put_off_percent: float
    """Refused or put off, whatever came later."""
    compensated_percent: float
    """Of those put off: read in the end."""
    compensated_p95_s: float
    line_and_device_p50_s: float
    line_and_device_p99_s: float
    urgent_p50_s: float
    urgent_p99_s: float
    routine_p99_s: float
    routine_longest_s: float
    mean_batch: float
    device_s_per_image: float
    busy_percent: float
    """Of the devices' time until the last image came."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; 0 where there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(images: Sequence[Image], fates: Fates, *, devices: int) -> Figures:
    """Sum up what became of one seed's images."""
    answered = [number for number in fates.done_at if number not in fates.given_up_at]
    times = {number: answered_in_s(images[number], fates.done_at[number]) for number in fates.done_at}
    full = [times[number] for number in answered]
    on_site = [fates.done_at[number] - images[number].arrives_at for number in answered]
    urgent = [times[number] for number in answered if images[number].lane is Lane.URGENT]
    routine = [times[number] for number in answered if images[number].lane is Lane.ROUTINE]
    compensated = [times[number] for number in fates.given_up_at if number in fates.done_at]
    in_time = sum(fates.done_at[number] <= images[number].done_by + 1e-9 for number in answered)
    span_s = images[-1].arrives_at - images[0].arrives_at
    busy_s = sum(run.ends_at - run.began_at for run in fates.runs)
    read = sum(len(run.numbers) for run in fates.runs if run.has_room)
    given_up = len(fates.given_up_at)
    return Figures(
        p50_s=percentile(full, 0.5),
        p95_s=percentile(full, 0.95),
        p99_s=percentile(full, 0.99),
        missed_percent=100 * (1 - in_time / len(images)),
        in_time_per_s=in_time / span_s,
        put_off_percent=100 * given_up / len(images),
        compensated_percent=100 * len(compensated) / given_up if given_up else 100.0,
        compensated_p95_s=percentile(compensated, 0.95),
        line_and_device_p50_s=percentile(on_site, 0.5),
        line_and_device_p99_s=percentile(on_site, 0.99),
        urgent_p50_s=percentile(urgent, 0.5),
        urgent_p99_s=percentile(urgent, 0.99),
        routine_p99_s=percentile(routine, 0.99),
        routine_longest_s=max(routine, default=0.0),
        mean_batch=read / max(len(fates.runs), 1),
        device_s_per_image=busy_s / max(read, 1),
        busy_percent=100 * busy_s / (devices * span_s),
    )


def mean_of(figures: Sequence[Figures]) -> Figures:
    """The mean over seeds, figure by figure."""
    return Figures(**{each.name: sum(getattr(one, each.name) for one in figures) / len(figures) for each in fields(Figures)})
