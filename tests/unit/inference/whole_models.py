"""Model folders whose weights bring their own graph, and what can be done to their archives."""

import hashlib
import io
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from pipeline.inference.card import load_card
from pipeline.inference.networks import build_network
from pipeline.inference.seeded import write_card, write_seeded_model
from pipeline.inference.weights import read_weights
from schemas.model_card import ModelCard

SIDE_PX = 32
MOST_IMAGES = 64


def network_of(folder: Path) -> nn.Module:
    """The network of a safetensors folder."""
    card = load_card(folder)
    return build_network(card, read_weights(folder, card))


def exported(network: nn.Module) -> bytes:
    """The network as `torch.export.save` writes it, for batches of any size."""
    example = torch.zeros(2, 1, SIDE_PX, SIDE_PX)
    program = torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim("images", min=1, max=MOST_IMAGES)},))
    target = io.BytesIO()
    torch.export.save(program, target)
    return target.getvalue()


def scripted(network: nn.Module) -> bytes:
    """The network as `torch.jit.save` writes it."""
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(network, torch.zeros(2, 1, SIDE_PX, SIDE_PX), check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, target)
    return target.getvalue()


def write_whole_model(folder: Path, content: bytes, file: str) -> ModelCard:
    """A folder of that content, with the card that a seeded model has."""
    card = write_seeded_model(folder, seed=1, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    (folder / card.weights).unlink()
    (folder / file).write_bytes(content)
    own: dict[str, object] = {
        "weights": file,
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "network": None,
        "network_arguments": {},
    }
    card = card.model_copy(update=own)
    write_card(folder, card)
    return card


def edited(content: bytes, edits: Mapping[str, Callable[[bytes], bytes]], added: Mapping[str, bytes] | None = None) -> bytes:
    """The archive with some records rewritten, found by the end of their names, and some added."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as sink:
        names = source.namelist()
        for ending in edits:
            assert any(name.endswith(ending) for name in names), (ending, names)
        for name in names:
            record = source.read(name)
            for ending, edit in edits.items():
                record = edit(record) if name.endswith(ending) else record
            sink.writestr(name, record)
        for name, record in (added or {}).items():
            sink.writestr(f"{names[0].partition('/')[0]}/{name}", record)
    return target.getvalue()
