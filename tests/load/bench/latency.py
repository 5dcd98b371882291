"""How long one waits at 30 and at 60 % of the machine's limit, beside a bare loop under the same open load in the same run."""

from collections import defaultdict

from tests.acceptance.running import Deployment
from tests.load.bench.ground import CORES, Bodies, Ground, bodies_of, product, run_beside, warm_up
from tests.load.figures import Figure, percentile
from tests.load.open_clients import OpenClients

JUDGED = 0.3
SHARES = (JUDGED, 0.6)
"""Of (b), the bare loop's images a second. At 60 % a product that does not carry 60 % is overloaded: shown, not judged."""
BARS = {50: 1.3, 99: 1.5}
"""Most times the bare loop's own wait, by percentile."""
PERCENTILES = (50, 95, 99)
ROUNDS = 2
SECONDS = 15.0
LIMIT_S = 8.0


def measure_latency(ground: Ground) -> list[Figure]:
    """Measure both, in turn, at each share."""
    ground.tell("latency: the limit of the machine")
    limit = ground.bare(ground.model, batch=ground.best_batch, processes=CORES, seconds=LIMIT_S)["images_per_s"]
    bodies = bodies_of(ground.images)
    bare, ours = defaultdict[float, list[float]](list), defaultdict[float, list[float]](list)
    unread = dict.fromkeys(SHARES, 0)
    with product(ground.model.parent) as deployment:
        warm_up(deployment, bodies)
        for seed in range(1, ROUNDS + 1):
            for share in SHARES:
                ground.tell(f"latency: round {seed} of {ROUNDS} at {share:.0%} of {limit:.0f} images/s")
                bare[share] += _bare_waits(ground, share * limit, seed)
                waits, failed = _our_waits(deployment, bodies, share * limit, seed)
                ours[share] += waits
                unread[share] += failed
    return [figure for share in SHARES for figure in _figures(share, bare[share], ours[share], unread[share])]


def _bare_waits(ground: Ground, rate: float, seed: int) -> list[float]:
    asked = {"model": ground.model, "images": ground.images, "batch": ground.best_batch, "processes": CORES}
    found = run_beside("bare_open", {**asked, "rate": rate, "seconds": SECONDS, "seed": seed})
    waits: list[float] = found["waits_s"]
    return waits


def _our_waits(deployment: Deployment, bodies: Bodies, rate: float, seed: int) -> tuple[list[float], int]:
    load = OpenClients(deployment.access.url, deployment.access.api_key, bodies, rate=rate, seed=seed)
    with load.running():
        load.last(SECONDS)
    return [answer.wait_s for answer in load.answers], sum(not answer.is_final for answer in load.answers)


def _figures(share: float, bare: list[float], ours: list[float], unread: int) -> list[Figure]:
    section, is_judged = f"latency at {share:.0%} of (b)", share == JUDGED
    figures = []
    for percent in PERCENTILES:
        theirs_ms, our_ms = 1000 * percentile(bare, percent), 1000 * percentile(ours, percent)
        figures.append(Figure(section, f"P{percent}, bare loop", theirs_ms, "ms"))
        figures.append(Figure(section, f"P{percent}, secondread", our_ms, "ms"))
        if percent in BARS:
            bar = BARS[percent] if is_judged else None
            figures.append(Figure(section, f"P{percent}, times the bare loop's", our_ms / theirs_ms, most=bar))
    return [*figures, Figure(section, "answers that are no reading", unread, most=0 if is_judged else None)]
