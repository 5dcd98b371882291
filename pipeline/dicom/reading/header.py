"""One data set's header as our own `InstanceHeader`: required attributes checked, optional ones warned of."""

from collections.abc import Callable
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from pipeline.dicom.errors import BadValue
from pipeline.dicom.reading.elements import Elements, bad_value, missing
from pipeline.dicom.reading.file import OpenedFile
from pipeline.dicom.reading.layout import PixelLayout
from pipeline.dicom.reading.optional import Warnings, frame_decimals
from pipeline.dicom.reading.spacing import read_spacing
from schemas.instance import InstanceHeader

SECONDARY_CAPTURE: Final = "1.2.840.10008.5.1.4.1.1.7"
"""Secondary Capture Image Storage and, below it, its multi-frame kinds."""
_UNTOUCHED: Final = (1.0, 0.0)
_LINEAR_MIN_WIDTH: Final = 1.0


def read_header(opened: OpenedFile, layout: PixelLayout, *, warnings: Warnings) -> InstanceHeader:
    """Read what later stages need.

    Raises
    ------
    MissingTag, BadValue, BadUid
        A required attribute is absent or unusable.
    """
    elements, syntax = opened.elements, opened.syntax
    ids = _identity(elements, opened.meta, warnings)
    slope, intercept = _rescale(elements, warnings)
    center, width = _window(elements, warnings)
    spacing_mm, spacing_source = read_spacing(elements, rows_px=layout.rows_px, columns_px=layout.columns_px, warnings=warnings)
    is_lossy = syntax.is_lossy or warnings.optional(elements.code, "LossyImageCompression", "lossy") == "01"
    return InstanceHeader(
        **ids,
        transfer_syntax_uid=syntax.uid,
        body_part=warnings.optional(elements.code, "BodyPartExamined", "body-part"),
        laterality=_laterality(elements, warnings),
        image_type=warnings.optional(elements.codes, "ImageType", "image-type") or (),
        rows_px=layout.rows_px,
        columns_px=layout.columns_px,
        frame_count=layout.frame_count,
        samples_per_pixel=layout.sample_count,
        photometric_interpretation=layout.photometric,
        bits_stored=layout.bits_stored,
        is_signed=layout.is_signed,
        slope=slope,
        intercept=intercept,
        window_center=center,
        window_width=width,
        padding_value=_padding_value(elements, layout, warnings),
        spacing_mm=spacing_mm,
        spacing_source=spacing_source,
        is_lossy=is_lossy,
        warnings=warnings.codes(),
    )


def _identity(elements: Elements, meta: Elements, warnings: Warnings) -> dict[str, str]:
    """The UIDs and the modality. A converted picture (Secondary Capture) may lack what names its series: it gets stand-ins."""
    sop_class_uid = _required(elements.uid, "SOPClassUID")
    is_capture = sop_class_uid == SECONDARY_CAPTURE or sop_class_uid.startswith(f"{SECONDARY_CAPTURE}.")
    if not elements.has("PatientID"):
        warnings.add("patient-id-missing")
    if not is_capture:
        return {
            "sop_class_uid": sop_class_uid,
            "sop_instance_uid": _required(elements.uid, "SOPInstanceUID"),
            "study_instance_uid": _required(elements.uid, "StudyInstanceUID"),
            "series_instance_uid": _required(elements.uid, "SeriesInstanceUID"),
            "modality": _required(elements.code, "Modality"),
        }
    sop_instance_uid = elements.uid("SOPInstanceUID") or _required(meta.uid, "MediaStorageSOPInstanceUID")
    stated = {
        "sop_instance_uid": elements.uid("SOPInstanceUID"),
        "study_instance_uid": elements.uid("StudyInstanceUID"),
        "series_instance_uid": elements.uid("SeriesInstanceUID"),
        "modality": elements.code("Modality"),
    }
    if None in stated.values():
        warnings.add("identity-incomplete")
    stand_ins = {
        "sop_instance_uid": sop_instance_uid,
        "study_instance_uid": _stand_in(sop_instance_uid, "study"),
        "series_instance_uid": _stand_in(sop_instance_uid, "series"),
        "modality": "OT",
    }
    return {"sop_class_uid": sop_class_uid} | stand_ins | {name: value for name, value in stated.items() if value}


def _required(read: Callable[[str], str | None], keyword: str) -> str:
    value = read(keyword)
    if value is None:
        raise missing(keyword)
    return value


def _stand_in(sop_instance_uid: str, level: str) -> str:
    """A repeatable UID for a level that the file does not name (PS3.5 annex B.2)."""
    return f"2.25.{uuid5(NAMESPACE_OID, f'{sop_instance_uid}/{level}').int}"


def _laterality(elements: Elements, warnings: Warnings) -> str | None:
    for keyword in ("ImageLaterality", "Laterality"):
        side = warnings.optional(elements.code, keyword, "laterality")
        if side in ("L", "R", "B", "U"):
            return side
        if side is not None:
            warnings.add("laterality-unreadable")
    return None


def _rescale(elements: Elements, warnings: Warnings) -> tuple[float, float]:
    """Slope and intercept. Where frames differ: none, as one frame's numbers would be wrong for the others."""
    if elements.has("ModalityLUTSequence"):
        warnings.add("modality-lut-not-applied")
    found = [_rescale_part(elements, keyword, warnings) for keyword in ("RescaleSlope", "RescaleIntercept")]
    if "rescale-differs-by-frame" in warnings.codes():
        return _UNTOUCHED
    slope, intercept = (part if part is not None else neutral for part, neutral in zip(found, _UNTOUCHED, strict=True))
    if slope == 0:
        raise bad_value("RescaleSlope", "is zero, which flattens the image")
    return slope, intercept


def _rescale_part(elements: Elements, keyword: str, warnings: Warnings) -> float | None:
    numbers = elements.decimals(keyword)
    if numbers is None and elements.has(keyword):
        warnings.add("rescale-empty")
    if numbers is None:
        numbers = frame_decimals(elements, "PixelValueTransformationSequence", keyword, warnings=warnings, code="rescale")
    if numbers is None:
        return None
    if len(numbers) != 1:
        raise bad_value(keyword, "holds more than one number")
    return numbers[0]


def _window(elements: Elements, warnings: Warnings) -> tuple[float, float] | tuple[None, None]:
    """The first usable pair of the linear VOI window."""
    if elements.has("VOILUTSequence"):
        warnings.add("voi-lut-not-applied")
    function = warnings.optional(elements.code, "VOILUTFunction", "window")
    if function not in (None, "LINEAR"):
        warnings.add("window-function-not-applied")
        return None, None
    centers, widths = (_window_part(elements, keyword, warnings) for keyword in ("WindowCenter", "WindowWidth"))
    for center, width in zip(centers, widths, strict=False):
        if width >= _LINEAR_MIN_WIDTH:
            return center, width
    if centers or widths:
        warnings.add("window-unusable")
    return None, None


def _window_part(elements: Elements, keyword: str, warnings: Warnings) -> tuple[float, ...]:
    numbers = warnings.optional(elements.decimals, keyword, "window")
    if numbers is None:
        numbers = frame_decimals(elements, "FrameVOILUTSequence", keyword, warnings=warnings, code="window")
    return numbers or ()


def _padding_value(elements: Elements, layout: PixelLayout, warnings: Warnings) -> int | None:
    try:
        return elements.integer("PixelPaddingValue", is_signed=layout.is_signed)
    except BadValue:
        warnings.add("padding-unreadable")
        return None
