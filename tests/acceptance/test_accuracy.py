"""What the pipeline finds in held-out images of real women, beside the bare model that is letterboxed by hand here.

The oracle is the network as it was trained and published, run by torch and Pillow alone: nothing of it is ours.
"""

import importlib.util
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.acceptance.running import Deployment, Json

pytestmark = [pytest.mark.corpus, pytest.mark.services]

SIDE_PX = 256
INSIDE = 128
"""Grey values from here on are a probability of a half or more."""
STUDY_COUNT = 22
BARE_DICE_MEAN, BARE_DICE_MEDIAN, BARE_AREA_ERROR = 0.826, 0.890, 0.10
"""As published with the model."""

Grey = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Study:
    """One image with its expert's outline, the pipeline's answer and the bare model's."""

    name: str
    case: Json
    truth: Mask
    pipeline: Grey
    bare: Grey


def grey(png: bytes | Path) -> Grey:
    with Image.open(BytesIO(png) if isinstance(png, bytes) else png) as image:
        return np.asarray(image.convert("L"))


def dice(mask: Mask, truth: Mask) -> float:
    return float(2 * (mask & truth).sum() / (mask.sum() + truth.sum()))


def area_error(mask: Mask, truth: Mask) -> float:
    return float(abs(int(mask.sum()) - int(truth.sum())) / truth.sum())


def bare_model(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("published_net", folder / "net.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net = module.LesionNet().eval()
    net.load_state_dict(load_file(folder / "weights.safetensors"))
    return net


def bare_map(net: Any, image: Grey) -> Grey:
    """Letterbox, run, crop, resize back, quantise."""
    rows, columns = image.shape
    scale = SIDE_PX / max(rows, columns)
    height, width = max(1, round(rows * scale)), max(1, round(columns * scale))
    top, left = (SIDE_PX - height) // 2, (SIDE_PX - width) // 2
    square = Image.new("L", (SIDE_PX, SIDE_PX), 0)
    square.paste(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR), (left, top))
    with torch.no_grad():
        logits, _ = net(torch.from_numpy(np.array(square))[None, None].float() / 255)
    inside = torch.sigmoid(logits)[0, 0].numpy()[top : top + height, left : left + width]
    probability = np.asarray(Image.fromarray(inside).resize((columns, rows), Image.Resampling.BILINEAR))
    quantised: Grey = np.round(probability * 255).astype(np.uint8)
    return quantised


@pytest.fixture(scope="module")
def held_out(deployment: Deployment, corpus: Path) -> Sequence[Study]:
    folder = corpus / "us_breast"
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    paths = sorted(folder.glob("*.dcm"))
    with ThreadPoolExecutor(8) as threads:
        cases = list(threads.map(lambda path: deployment.door.answered(path.read_bytes()), paths))
    torch.set_num_threads(1)
    net = bare_model(corpus.parents[1] / "model")
    return [
        Study(
            name=path.stem,
            case=case,
            truth=grey(folder / truth[path.stem]["mask"]) >= INSIDE,
            pipeline=grey(deployment.door.http.get(f"/v1/cases/{case['case_id']}/probability.png").content),
            bare=bare_map(net, pydicom.dcmread(path).pixel_array),
        )
        for path, case in zip(paths, cases, strict=True)
    ]


def test_every_held_out_study_is_read(held_out: Sequence[Study]) -> None:
    assert len(held_out) == STUDY_COUNT
    assert {study.case["status"] for study in held_out} == {"completed"}
    assert {study.case["result"]["outcome"] for study in held_out} <= {"findings", "nothing_found", "not_assessable"}


def test_each_probability_map_is_the_bare_models_on_the_same_pixels(held_out: Sequence[Study]) -> None:
    for study in held_out:
        assert study.pipeline.shape == study.truth.shape
        difference = np.abs(study.pipeline.astype(np.int16) - study.bare.astype(np.int16))
        assert difference.max() <= 1, study.name


def test_the_masks_are_as_good_as_the_bare_models(held_out: Sequence[Study]) -> None:
    scores = [dice(study.pipeline >= INSIDE, study.truth) for study in held_out]
    bare = [dice(study.bare >= INSIDE, study.truth) for study in held_out]

    assert np.mean(scores) == pytest.approx(np.mean(bare), abs=0.01)
    assert np.median(scores) == pytest.approx(np.median(bare), abs=0.01)


def test_the_masks_are_as_good_as_was_published_with_the_model(held_out: Sequence[Study]) -> None:
    scores = [dice(study.pipeline >= INSIDE, study.truth) for study in held_out]
    errors = [area_error(study.pipeline >= INSIDE, study.truth) for study in held_out]

    assert np.mean(scores) == pytest.approx(BARE_DICE_MEAN, abs=0.01)
    assert np.median(scores) == pytest.approx(BARE_DICE_MEDIAN, abs=0.01)
    assert np.median(errors) == pytest.approx(BARE_AREA_ERROR, abs=0.01)


def test_sizes_are_in_pixels_and_say_so_where_the_header_states_no_spacing(held_out: Sequence[Study]) -> None:
    images = [image for study in held_out for image in study.case["result"]["images"]]
    units = {measured["unit"] for image in images for finding in image["findings"] for measured in finding["measurements"]}

    assert {image["length_unit"] for image in images} == {"px"}
    assert {image["spacing_mm"] for image in images} == {None}
    assert units == {"px", "px2", "1"}


def test_the_area_of_a_finding_is_that_of_the_outline_in_the_map(held_out: Sequence[Study]) -> None:
    single = [study for study in held_out if len(study.case["result"]["images"][0]["findings"]) == 1]  # more than one share the map

    assert len(single) > STUDY_COUNT / 2
    for study in single:
        measured = {each["name"]: each["value"] for each in study.case["result"]["images"][0]["findings"][0]["measurements"]}
        # The map may hold specks that are smaller than the card's least area.
        assert measured["area"] == pytest.approx((study.pipeline >= INSIDE).sum(), rel=0.02)
