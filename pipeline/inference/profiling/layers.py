"""Where the time of a forward pass goes, layer by layer."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pipeline.inference.profiling.flops import LayerFlops
from schemas.performance_card import LayerCost

BETWEEN = "between the layers"
"""What no layer accounts for: additions, activations and resizing that the network does itself."""
RUNS = 15
WARM_RUNS = 3


@dataclass
class _Clock:
    """Reads the time on the device's own side: a CUDA device works on while the host has long gone on."""

    device: torch.device
    begun: dict[str, float] = field(default_factory=dict)
    spent_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def now_s(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def enter(self, name: str) -> None:
        self.begun[name] = self.now_s()

    def leave(self, name: str) -> None:
        # A layer that is used twice in a pass has the sum.
        self.spent_s[name] += self.now_s() - self.begun.pop(name)


def layer_costs(network: nn.Module, display: Tensor, flops: LayerFlops, *, runs: int = RUNS) -> tuple[float, tuple[LayerCost, ...]]:
    """Time every layer that holds no others, and what is done between them.

    Parameters
    ----------
    network
        In eval mode.
    display
        (image, channel, row, column), float32, on the network's device.
    flops
        As `count_flops` gives them for the same pass.
    runs
        Timed passes; each figure is their median.

    Returns
    -------
    Seconds of a whole pass without any watching, and the layers, most time first. Watching costs each layer some microseconds.
    """
    names = {name: type(layer).__name__ for name, layer in network.named_modules() if _is_leaf(name, layer)}
    passes, watched, by_layer = list[float](), list[float](), defaultdict[str, list[float]](list)
    with torch.inference_mode():
        for _ in range(WARM_RUNS):
            network(display)
        for _ in range(runs):
            clock = _Clock(display.device)
            passes.append(_timed(clock, lambda: network(display)))
            with _watched(network, names, clock):
                watched.append(_timed(clock, lambda: network(display)))
            for name in names:
                by_layer[name].append(clock.spent_s[name])
    whole_s = statistics.median(watched)
    costs = [LayerCost(name=name, kind=names[name], flops=flops.get(name, 0), **_time(by_layer[name], whole_s)) for name in names]
    between = [run_s - sum(spent[number] for spent in by_layer.values()) for number, run_s in enumerate(watched)]
    costs.append(LayerCost(name=BETWEEN, kind="", flops=flops[""] - sum(cost.flops or 0 for cost in costs), **_time(between, whole_s)))
    return statistics.median(passes), tuple(sorted(costs, key=lambda cost: -cost.median_s))


def _is_leaf(name: str, layer: nn.Module) -> bool:
    return bool(name) and not any(layer.children()) and not isinstance(layer, nn.Identity)


def _timed(clock: _Clock, run: Callable[[], object]) -> float:
    begun_s = clock.now_s()
    run()
    return clock.now_s() - begun_s


def _time(seconds: list[float], whole_s: float) -> dict[str, float]:
    median_s = max(0.0, statistics.median(seconds))
    return {"median_s": median_s, "share": median_s / whole_s}


@contextmanager
def _watched(network: nn.Module, names: dict[str, str], clock: _Clock) -> Iterator[None]:
    handles = []
    for name, layer in network.named_modules():
        if name in names:
            handles.append(layer.register_forward_pre_hook(lambda *_, name=name: clock.enter(name)))
            handles.append(layer.register_forward_hook(lambda *_, name=name: clock.leave(name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
