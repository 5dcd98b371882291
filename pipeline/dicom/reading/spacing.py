"""How far apart the pixels are, and on whose word."""

from math import isclose
from typing import Final

from pipeline.dicom.errors import BadValue
from pipeline.dicom.reading.elements import Elements, bad_value
from pipeline.dicom.reading.optional import Warnings, frame_decimals
from schemas.instance import SpacingSource

Spacing = tuple[float, float]
"""(between rows, between columns), mm."""

MM_PER_CM: Final = 10.0
_CENTIMETRES: Final = 3
"""Physical Units X Direction (0018,6024), PS3.3 C.8.5.5.1.15."""
_TWO_DIMENSIONAL: Final = 1
_TISSUE: Final = 1
_SAME_SPACING: Final = 1e-3
"""Two regions of one transducer are written with rounded deltas."""
_COVERS_IMAGE: Final = 0.5
"""A region of less than half of the image is an inset; its scale says nothing about the rest."""
LONGEST_MM: Final = 100.0
"""No pixel of a medical image is larger; such a number is a broken decimal."""


def read_spacing(
    elements: Elements, *, rows_px: int, columns_px: int, warnings: Warnings
) -> tuple[Spacing, SpacingSource] | tuple[None, None]:
    """The distance between pixels and where it stands: in the patient, else in the ultrasound regions, else at the detector.

    Parameters
    ----------
    elements
        The data set.
    rows_px, columns_px
        Size of the image, for the share that an ultrasound region covers.
    warnings
        Takes what could not be used.

    References
    ----------
    DICOM PS3.3 10.7.1.3 (order of Pixel Spacing), C.8.5.5 (ultrasound regions), C.8.11.2 (Imager Pixel Spacing is
    at the detector, before magnification).
    """
    at_detector = _pair(elements, "ImagerPixelSpacing", warnings)
    in_patient = _pair(elements, "PixelSpacing", warnings) or _of_frames(elements, warnings)
    if in_patient is not None:
        # The same number as at the detector, and no word of a calibration: it is the detector's.
        is_calibrated = at_detector != in_patient or elements.has("PixelSpacingCalibrationType")
        return in_patient, "pixel_spacing" if is_calibrated else "imager_pixel_spacing"
    regional = _of_regions(elements, image_area_px=rows_px * columns_px, warnings=warnings)
    if regional is not None:
        return regional, "ultrasound_region"
    if at_detector is not None:
        return at_detector, "imager_pixel_spacing"
    _warn_of_bare_ratio(elements, warnings)
    return None, None


def _pair(elements: Elements, keyword: str, warnings: Warnings) -> Spacing | None:
    numbers = warnings.optional(elements.decimals, keyword, "spacing")
    return _checked(numbers, warnings)


def _checked(numbers: tuple[float, ...] | None, warnings: Warnings) -> Spacing | None:
    if numbers is None:
        return None
    if len(numbers) != 2 or not all(0 < number < LONGEST_MM for number in numbers):
        warnings.add("spacing-unusable")
        return None
    return numbers[0], numbers[1]


def _of_frames(elements: Elements, warnings: Warnings) -> Spacing | None:
    return _checked(frame_decimals(elements, "PixelMeasuresSequence", "PixelSpacing", warnings=warnings, code="spacing"), warnings)


def _of_regions(elements: Elements, *, image_area_px: int, warnings: Warnings) -> Spacing | None:
    spacings: list[Spacing] = []
    largest_area_px = 0
    for region in elements.items("SequenceOfUltrasoundRegions"):
        try:
            measured = _region(region)
        except BadValue:
            warnings.add("ultrasound-region-unreadable")
            continue
        if measured is not None:
            spacing, area_px = measured
            spacings.append(spacing)
            largest_area_px = max(largest_area_px, area_px)
    if not spacings:
        return None
    if largest_area_px < _COVERS_IMAGE * image_area_px or not all(_are_close(spacings[0], other) for other in spacings):
        warnings.add("ultrasound-regions-ambiguous")
        return None
    return spacings[0]


def _region(region: Elements) -> tuple[Spacing, int] | None:
    """Spacing and area in pixels of a two-dimensional tissue region in centimetres; None for any other."""
    units = {region.integer(f"PhysicalUnits{axis}Direction") for axis in "XY"}
    is_tissue = region.integer("RegionSpatialFormat") == _TWO_DIMENSIONAL and region.integer("RegionDataType") == _TISSUE
    if not is_tissue or units != {_CENTIMETRES}:
        return None
    deltas_mm = [_delta_mm(region, f"PhysicalDelta{axis}") for axis in "YX"]
    return (deltas_mm[0], deltas_mm[1]), _extent_px(region, "Y") * _extent_px(region, "X")


def _delta_mm(region: Elements, keyword: str) -> float:
    numbers = region.decimals(keyword) or ()
    # The sign tells which way the axis runs.
    distance_mm = abs(numbers[0]) * MM_PER_CM if len(numbers) == 1 else 0.0
    if not 0 < distance_mm < LONGEST_MM:
        raise bad_value(keyword, "is not a distance")
    return distance_mm


def _extent_px(region: Elements, axis: str) -> int:
    first, last = region.integer(f"RegionLocationMin{axis}0"), region.integer(f"RegionLocationMax{axis}1")
    if first is None or last is None:
        raise bad_value(f"RegionLocationMin{axis}0", "or its counterpart is missing")
    return max(0, last - first + 1)


def _are_close(one: Spacing, other: Spacing) -> bool:
    return all(isclose(mine, theirs, rel_tol=_SAME_SPACING) for mine, theirs in zip(one, other, strict=True))


def _warn_of_bare_ratio(elements: Elements, warnings: Warnings) -> None:
    ratio = warnings.optional(elements.decimals, "PixelAspectRatio", "aspect")
    if ratio is not None and len(set(ratio)) != 1:
        warnings.add("aspect-without-spacing")
