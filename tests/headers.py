"""The header that most tests start from."""

from typing import Any

from schemas.instance import InstanceHeader


def breast_ultrasound(**different: Any) -> InstanceHeader:
    """A left breast in ultrasound: one frame, 48 rows by 64 columns of 8-bit grey, without spacing; name what is to differ."""
    usual = InstanceHeader(
        sop_class_uid="1.2.840.10008.5.1.4.1.1.6.1",
        sop_instance_uid="1.2.3.4",
        study_instance_uid="1.2.3",
        series_instance_uid="1.2.3.1",
        transfer_syntax_uid="1.2.840.10008.1.2.1",
        modality="US",
        body_part="BREAST",
        laterality="L",
        rows_px=48,
        columns_px=64,
        frame_count=1,
        samples_per_pixel=1,
        photometric_interpretation="MONOCHROME2",
        bits_stored=8,
        is_signed=False,
    )
    return usual.model_copy(update=different)
