"""A models folder with versions that can be told apart, some of them bad, and the command that acts on them."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from pipeline.inference.seeded import write_card, write_seeded_model
from schemas.model_card import ModelCard
from tests.acceptance.running import START_LIMIT_S, Deployment
from tests.unit.inference.whole_models import write_whole_model
from workers.settings import bare_environment

ROOT = Path(__file__).resolve().parents[2]
SIDE_PX, WIDTHS = 64, (4, 4, 4, 4)
NAME = "seeded-unet"
OLD, NEW = f"1.{SIDE_PX}", f"2.{SIDE_PX}"
WRONG_DIGEST, NOT_FINITE, WRONG_SHAPE = f"3.{SIDE_PX}", f"4.{SIDE_PX}", f"5.{SIDE_PX}"
REFUSALS = {WRONG_DIGEST: "weights-refused", NOT_FINITE: "bad-output", WRONG_SHAPE: "bad-output"}
"""Why each bad version is refused."""


class Halved(torch.nn.Module):
    """A network whose outline is half as wide as its input."""

    def forward(self, display: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Answer a batch with logits."""
        return display[:, :, :, ::2] - 0.5, display.flatten(1)[:, :2]


def write_version(models_dir: Path, seed: int) -> ModelCard:
    """A good version."""
    return write_seeded_model(models_dir / f"version-{seed}", seed=seed, side_px=SIDE_PX, widths=WIDTHS)


def write_bad_versions(models_dir: Path) -> None:
    """One with another file than its card's, one with a weight that is no number, one whose outline has a wrong shape."""
    card = write_version(models_dir, 3)
    (models_dir / "version-3" / card.weights).write_bytes(b"something else")
    card, folder = write_version(models_dir, 4), models_dir / "version-4"
    weights = load_file(folder / card.weights)
    weights["outline.0.bias"][3] = torch.nan
    (folder / card.weights).write_bytes(save(weights))
    digest = hashlib.sha256((folder / card.weights).read_bytes()).hexdigest()
    write_card(folder, card.model_copy(update={"weights_sha256": digest}))
    dynamic = ({0: torch.export.Dim("images", min=1, max=64)},)
    program = torch.export.export(Halved(), (torch.zeros(2, 1, SIDE_PX, SIDE_PX),), dynamic_shapes=dynamic)
    archive = models_dir / "halved.pt2"
    torch.export.save(program, archive)
    folder = models_dir / "version-5"
    card = write_whole_model(folder, archive.read_bytes(), "weights.pt2")
    write_card(folder, card.model_copy(update={"version": WRONG_SHAPE, "input": card.input.model_copy(update={"side_px": SIDE_PX})}))
    archive.unlink()


def models(deployment: Deployment, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `secondread models` as an operator of this deployment does."""
    return subprocess.run(
        [sys.executable, "-m", "workers.cli.main", "models", *arguments],
        env=bare_environment() | {"SECONDREAD_STATE_DIR": str(deployment.state_dir), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
    )


def acted(deployment: Deployment, *arguments: str) -> str:
    """The same, where it must succeed; return what it said."""
    done = models(deployment, *arguments)
    assert done.returncode == 0, done.stderr + log_of(deployment)
    return done.stdout


def log_of(deployment: Deployment) -> str:
    """The end of the inference process's log."""
    return (deployment.logs / "inference-1.log").read_text()[-6000:]


def answered_by(deployment: Deployment, case_ids: Sequence[str]) -> Counter[tuple[str, str, str]]:
    """How many cases were (prepared for, inferred by, reported with) which version."""
    ids = [case_id.removeprefix("case_") for case_id in case_ids]
    rows = deployment.rows(
        "SELECT work->'prepared'->>'model', work->'inferred'->>'model', body FROM cases JOIN results ON case_id = cases.id"
        " WHERE cases.id = ANY(%s::uuid[])",
        ids,
    )
    return Counter((prepared, inferred, json.loads(body)["algorithm"]["version"]) for prepared, inferred, body in rows)


def reported(deployment: Deployment, version: str) -> str | None:
    """What the inference process says of a version, if anything."""
    rows = deployment.rows("SELECT state FROM model_reports WHERE version = %s", version)
    return str(rows[0][0]) if rows else None
