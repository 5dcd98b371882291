"""A performance card for the terminal."""

from collections.abc import Iterator

from rich import box
from rich.table import Table

from pipeline.batching.latency import LatencyModel
from schemas.performance_card import BatchCost, PerformanceCard

MOST_LAYERS = 10
MIB = 1024 * 1024


def profile_tables(card: PerformanceCard) -> Iterator[Table]:
    """The layers that take the most time, and the batch matrix, which comes last."""
    yield _layers(card)
    yield _batches(card)


def profile_words(card: PerformanceCard) -> Iterator[str]:
    """What the tables do not say, in sentences."""
    counted = f"{card.counted_flops / 1e9:.2f} GFLOP an image counted in a real run"
    if card.predicted_flops is None:
        yield f"{counted}; this network cannot be run without data, so nothing was foretold."
    elif card.predicted_flops == card.counted_flops:
        yield f"{counted}, as foretold without data."
    else:
        foretold = f"{card.predicted_flops / 1e9:.2f} were foretold without data"
        yield f"{counted}, but {foretold}: the network takes another way when it sees values."
    fit = LatencyModel.from_sweep({batch.images: batch.median_s for batch in card.batches})
    line = f"L(b) = {1000 * fit.alpha_s:.1f} ms + {1000 * fit.beta_s:.1f} ms b"
    yield f"{line}; the knee is at {card.knee}: nine tenths of the most images a second."
    if card.does_not_fit is not None:
        yield f"A batch of {card.does_not_fit} does not fit the device's memory."


def _table(title: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title=title, title_justify="left")


def _layers(card: PerformanceCard) -> Table:
    table = _table(f"One image, forward pass {1000 * card.forward_s:.1f} ms: where the time goes")
    table.add_column("Layer", overflow="fold")
    table.add_column("Kind")
    for heading in ("ms", "Share", "MFLOP", "GFLOP/s"):
        table.add_column(heading, justify="right")
    for layer in card.layers[:MOST_LAYERS]:
        flops = layer.flops or 0
        rate = f"{flops / layer.median_s / 1e9:.1f}" if flops and layer.median_s else ""
        mega = f"{flops / 1e6:.1f}" if flops else ""
        table.add_row(layer.name, layer.kind, f"{1000 * layer.median_s:.2f}", f"{100 * layer.share:.0f} %", mega, rate)
    if others := card.layers[MOST_LAYERS:]:
        shares, spent_s = sum(layer.share for layer in others), sum(layer.median_s for layer in others)
        table.add_row(f"{len(others)} others", "", f"{1000 * spent_s:.2f}", f"{100 * shares:.0f} %", "", "")
    return table


def _batches(card: PerformanceCard) -> Table:
    threads = f"{card.threads} thread{'s' if card.threads > 1 else ''}, " if card.device == "cpu" else ""
    table = _table(f"{card.model} on {card.device} ({card.device_name}), {threads}{card.bucket} px")
    for heading in ("Batch", "Latency ms", "P10 to P90", "Images/s", "Peak MiB", "Runs", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for batch in card.batches:
        table.add_row(*_batch(batch), "knee" if batch.images == card.knee else "")
    return table


def _batch(batch: BatchCost) -> tuple[str, ...]:
    memory = "" if batch.peak_memory_bytes is None else f"{batch.peak_memory_bytes / MIB:.0f}"
    spread = f"{1000 * batch.p10_s:.1f} to {1000 * batch.p90_s:.1f}"
    return (str(batch.images), f"{1000 * batch.median_s:.1f}", spread, f"{batch.images_per_s:.1f}", memory, str(batch.run_count))
