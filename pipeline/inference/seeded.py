"""Model folders with random weights: the network and the cost of a real model, and answers that mean nothing."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import torch
from safetensors.torch import save
from torch import nn

from pipeline.inference.card import CARD_FILE
from pipeline.inference.networks import NETWORKS
from schemas.model_card import Applicability, CodedConcept, FindingCodes, ModelCard, ModelInput, Thresholds

NETWORK: Final = "lesion-unet"
WEIGHTS_FILE: Final = "weights.safetensors"
BENCHMARK_SIDE_PX: Final = 416
"""At the shipped widths one image of a batch of 4 to 8 takes about 21 ms of one core of the machine that benchmarks run on."""
SCORES: Final = ("malignancy", "presence")


def write_seeded_model(
    folder: Path, *, seed: int, side_px: int = BENCHMARK_SIDE_PX, widths: tuple[int, int, int, int] = (24, 48, 72, 96)
) -> ModelCard:
    """Write a model folder whose weights come from a seed (He's initialisation), with its card and digests.

    Equal arguments give equal folders. It covers what the shipped model covers, has no golden set, and must never read
    images of people.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    weights = _seeded_weights(seed, widths)
    sha256 = hashlib.sha256(weights).hexdigest()
    card = _card(seed=seed, side_px=side_px, widths=widths, sha256=sha256)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS_FILE).write_bytes(weights)
    write_card(folder, card)
    return card


def write_card(folder: Path, card: ModelCard) -> None:
    """Write `card.toml` of a model folder; reading it back gives an equal card."""
    lines = _toml_lines(card.model_dump(mode="json", exclude_none=True))
    (folder / CARD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _seeded_weights(seed: int, widths: tuple[int, int, int, int]) -> bytes:
    # Forked, so that the caller's random numbers do not depend on having made a model.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[NETWORK](widths=widths, scores=len(SCORES))
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        _quieten(network.outline)
    return save({name: values.contiguous() for name, values in network.state_dict().items()})


def _quieten(outline: nn.Module) -> None:
    """Let the outline head say "no lesion" almost everywhere: noise would be outlined as hundreds of specks, as no trained model does."""
    head = next(module for module in outline.modules() if isinstance(module, nn.Conv2d))
    nn.init.zeros_(head.weight)
    if head.bias is not None:
        nn.init.constant_(head.bias, -4.0)


def _card(*, seed: int, side_px: int, widths: tuple[int, int, int, int], sha256: str) -> ModelCard:
    version = f"{seed}.{side_px}"
    return ModelCard(
        name="seeded-unet",
        version=version,
        title="Random weights for measurements",
        manufacturer="secondread",
        intended_use="Measuring and testing the pipeline. Its answers are noise.",
        licence="Apache-2.0",
        data="None: the weights are random numbers.",
        device_uid=f"2.25.{uuid5(NAMESPACE_OID, f'seeded-unet:{version}/{sha256}').int}",
        network=NETWORK,
        network_arguments={"widths": widths},
        weights=WEIGHTS_FILE,
        weights_sha256=sha256,
        input=ModelInput(side_px=side_px, scale=1 / 255),
        applicability=Applicability(modalities=("US",), body_parts=("BREAST",), body_part_may_be_unstated=True),
        scores=SCORES,
        thresholds=Thresholds(mask=0.5, presence=0.5, malignancy=0.5, min_area_px=30),
        codes=FindingCodes(
            finding=CodedConcept(value="4147007", scheme="SCT", meaning="Mass"),
            category=CodedConcept(value="49755003", scheme="SCT", meaning="Morphologically Abnormal Structure"),
            site=CodedConcept(value="76752008", scheme="SCT", meaning="Breast"),
            source="As the breast lesion model's; the findings are noise.",
        ),
        limits=("The weights are random: no answer of this model means anything.",),
    )


def _toml_lines(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Write plain values first, then one section a nested table. A JSON string, number or list of these is TOML as it stands."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield f"\n[{prefix}{key}]"
            yield from _toml_lines(value, f"{prefix}{key}.")
