"""Connected regions of a probability map: what may become a finding."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from skimage.measure import label

from pipeline.imaging.arrays import FloatImage, MaskImage

Points = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.int32]

EIGHT_CONNECTED = 2
"""Steps along both axes at once: pixels that touch at a corner belong together."""


@dataclass(frozen=True, slots=True)
class Component:
    """One connected region of the source image, largest first among its kind."""

    top_px: int
    left_px: int
    mask: MaskImage
    """(row, column) of the bounding box; True inside the region."""
    area_px: int
    centroid_px: tuple[float, float]
    """(row, column) on the source image; a pixel's centre is a whole number."""
    rim_px: Points
    """(point, 2): row and column, on the source image, of the pixels with a neighbour outside the region."""

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns of the bounding box, to index an image of the source geometry."""
        height_px, width_px = self.mask.shape
        return slice(self.top_px, self.top_px + height_px), slice(self.left_px, self.left_px + width_px)


def find_components(probability: FloatImage, *, threshold: float, min_area_px: int) -> tuple[Component, ...]:
    """Outline the connected regions in which the probability reaches the threshold.

    Parameters
    ----------
    probability
        (row, column), float32, 0 to 1, on the source image.
    threshold
        A pixel with exactly this probability is inside.
    min_area_px
        Smaller regions are left out.

    Returns
    -------
    Largest first; of equal ones, the one whose first pixel comes first in reading order.
    """
    mask = probability >= threshold
    rows = np.flatnonzero(mask.any(axis=1))
    if not rows.size:
        return ()
    # Few rows hold a region: what follows costs them, not the image.
    top_px = int(rows[0])
    numbered: Numbers = label(mask[top_px : int(rows[-1]) + 1], connectivity=EIGHT_CONNECTED)  # type: ignore[no-untyped-call]
    regions = [(numbered[window] == number, window) for number, window in enumerate(ndimage.find_objects(numbered), start=1)]
    # Noise can be thousands of specks: they are counted and dropped before anything else is asked of them.
    components = [
        _component(region, top_px=top_px + window[0].start, left_px=window[1].start)
        for region, window in regions
        if np.count_nonzero(region) >= min_area_px
    ]
    return tuple(sorted(components, key=lambda component: -component.area_px))


def _component(mask: MaskImage, *, top_px: int, left_px: int) -> Component:
    corner_px = np.array((top_px, left_px))
    pixels = np.argwhere(mask)
    row, column = pixels.mean(axis=0) + corner_px
    rim_px = np.argwhere(_rim(mask)) + corner_px
    return Component(top_px, left_px, mask, area_px=len(pixels), centroid_px=(float(row), float(column)), rim_px=rim_px)


def _rim(mask: MaskImage) -> MaskImage:
    """The pixels of a region that have one of their four neighbours outside; beyond the box is outside."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    rim: MaskImage = mask & ~inside
    return rim
