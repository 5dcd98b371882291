"""The studies of the demonstration. Apart from the rest because they load while the servers start."""

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.data import get_testdata_file

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.arrays import MaskImage
from pipeline.imaging.phantom import phantom
from workers.cli.demonstration.study import DemoStudy

SPACING_MM = (0.2, 0.2)
PHANTOMS = {
    "smooth lesion": (1, 0.0),
    "lobed lesion": (7, 0.15),
    "spiky lesion": (12, 0.3),
    "no lesion": (104, None),
}
"""Name to seed and irregularity of the lesion's edge; None has no lesion."""
MASK_FROM = 0.5
"""Probability from which a pixel counts as outlined."""


def make_studies(folder: Path) -> list[DemoStudy]:
    """Write the made-up studies as DICOM into a folder, and add the real CT that comes with pydicom: no model is made for it."""
    folder.mkdir(parents=True, exist_ok=True)
    return [*_phantoms(folder), *_real_ct()]


def dice(probability_png: bytes, truth: MaskImage) -> float:
    """Measure the overlap of the outlined pixels of a probability map (grey value / 255) with the truth: 0 apart, 1 the same.

    `truth` is (row, column), True in the lesion.

    References
    ----------
    Dice, Ecology 26 (1945), 297-302.
    """
    outlined = np.asarray(Image.open(BytesIO(probability_png)).convert("L")) >= MASK_FROM * 255
    both = np.count_nonzero(outlined & truth)
    return 2 * both / (np.count_nonzero(outlined) + np.count_nonzero(truth))


def _phantoms(folder: Path) -> Iterator[DemoStudy]:
    for name, (seed, irregularity) in PHANTOMS.items():
        image, mask = phantom(seed, has_lesion=irregularity is not None, irregularity=irregularity or 0.0)
        file = folder / f"{name.replace(' ', '-')}.dcm"
        file.write_bytes(phantom_instance(image, PhantomStudy(name=name, spacing_mm=SPACING_MM)))
        if irregularity is None:
            yield DemoStudy(name, file, "nothing_found")
        else:
            yield DemoStudy(name, file, "findings", overlap=partial(dice, truth=mask))


def _real_ct() -> Iterator[DemoStudy]:
    place = get_testdata_file("CT_small.dcm", download=False)
    if isinstance(place, str):
        yield DemoStudy("a real CT slice", Path(place), "not_applicable")
