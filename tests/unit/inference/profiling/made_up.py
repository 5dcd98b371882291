"""Figures that nobody measured."""

from collections.abc import Callable

from schemas.performance_card import BatchCost, PerformanceCard

MakeCard = Callable[..., PerformanceCard]
"""From seconds by batch size, and what is to differ."""


def batch_of(images: int, median_s: float) -> BatchCost:
    return BatchCost(
        images=images,
        run_count=9,
        median_s=median_s,
        p10_s=0.9 * median_s,
        p90_s=1.2 * median_s,
        images_per_s=images / median_s,
        peak_memory_bytes=300 * 1024 * 1024,
    )
