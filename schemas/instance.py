"""The facts of one DICOM instance that later stages need: geometry and values, no person."""

from typing import Literal

from pydantic import Field

from schemas.frozen import Frozen

SpacingSource = Literal["pixel_spacing", "imager_pixel_spacing", "ultrasound_region"]


class InstanceHeader(Frozen):
    """What intake read from one instance's header. Patient attributes are left in the file."""

    sop_class_uid: str
    sop_instance_uid: str
    study_instance_uid: str
    series_instance_uid: str
    transfer_syntax_uid: str
    modality: str
    body_part: str | None = None
    """Body Part Examined (0018,0015), upper case; None where unstated."""
    laterality: str | None = None
    """Image Laterality (0020,0062) or Laterality (0020,0060): L, R, B or U."""
    image_type: tuple[str, ...] = ()
    rows_px: int = Field(ge=1)
    columns_px: int = Field(ge=1)
    frame_count: int = Field(ge=1)
    samples_per_pixel: int
    photometric_interpretation: str
    """As stated by the header. The decoded samples are RGB where it names a colour model."""
    bits_stored: int
    is_signed: bool
    slope: float = 1.0
    """Rescale Slope (0028,1053)."""
    intercept: float = 0.0
    """Rescale Intercept (0028,1052)."""
    window_center: float | None = None
    """First usable Window Center (0028,1050), in modality values."""
    window_width: float | None = None
    padding_value: int | None = None
    """Pixel Padding Value (0028,0120), a stored value."""
    spacing_mm: tuple[float, float] | None = None
    """(between rows, between columns), as Pixel Spacing (0028,0030) orders them; None = unknown."""
    spacing_source: SpacingSource | None = None
    is_lossy: bool = False
    warnings: tuple[str, ...] = ()
    """Codes of what was odd but readable."""
