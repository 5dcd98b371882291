import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pydicom
import pytest
from pydicom.pixels.processing import apply_color_lut

from pipeline.dicom.decoder import Decoder
from pipeline.dicom.errors import REFUSALS
from pipeline.dicom.instance import MIB, DecodedInstance
from pipeline.errors import RejectedInput

TIMEOUT_S = 20.0
"""Nothing hangs; the corpus itself takes milliseconds a file."""
REFUSED_PEAK_BYTES = 300 * MIB
PARENT_GROWTH_BYTES = 96 * MIB
LOSSY_LEVELS = 4
"""Two JPEG libraries round differently."""
PALETTES = ["us_palette.dcm", "us_palette_rle.dcm", "ot_palette_16bit_lut.dcm", "us_palette16_big_endian.dcm"]

Expectation = dict[str, Any]


def allowed_outcomes(expectation: Expectation) -> set[str]:
    """`decoded` and the codes that the row's words allow, in our spelling."""
    words = {word.replace("_", "-") for word in re.findall(r"[a-z_]+", expectation["expect"])}
    return (words & REFUSALS.keys()) | ({"decoded"} if re.search(r"\bdecodes\b|\baccept\b", expectation["expect"]) else set())


def outcome_of(decoder: Decoder, data: bytes) -> tuple[str, DecodedInstance | None]:
    try:
        return "decoded", decoder.decode(data, timeout_s=TIMEOUT_S)
    except RejectedInput as refusal:
        return refusal.code, None


def assert_pixels_are_those_expected(decoded: DecodedInstance, expectation: Expectation) -> None:
    theirs = expectation["pydicom"]
    if "sha" not in theirs or decoded.header.photometric_interpretation == "PALETTE COLOR":
        return
    frames = decoded.stored if decoded.header.frame_count > 1 else decoded.stored[0]
    assert frames.shape == tuple(theirs["shape"])
    if expectation["lossy"]:
        assert frames.min() == pytest.approx(theirs["min"], abs=LOSSY_LEVELS)
        assert frames.max() == pytest.approx(theirs["max"], abs=LOSSY_LEVELS)
        assert frames.mean() == pytest.approx(theirs["mean"], abs=LOSSY_LEVELS)
        return
    little_endian = frames.astype(np.dtype(theirs["dtype"]).newbyteorder("<")).tobytes()
    assert hashlib.sha256(little_endian).hexdigest()[:16] == theirs["sha"]


@pytest.mark.corpus
def test_every_file_of_the_corpus_ends_as_its_row_says(decoder: Decoder, corpus: Path, expectation: Expectation) -> None:
    outcome, decoded = outcome_of(decoder, (corpus / expectation["path"]).read_bytes())
    assert outcome in allowed_outcomes(expectation)
    if decoded is None:
        assert decoder.peak_rss_bytes < REFUSED_PEAK_BYTES
    else:
        assert_pixels_are_those_expected(decoded, expectation)


@pytest.mark.corpus
@pytest.mark.parametrize("name", PALETTES)
def test_palettes_become_the_colours_that_pydicom_makes_of_them(decoder: Decoder, corpus: Path, name: str) -> None:
    path = corpus / "single" / name
    theirs = pydicom.dcmread(path)
    decoded = decoder.decode(path.read_bytes(), timeout_s=TIMEOUT_S)
    np.testing.assert_array_equal(decoded.stored[0], apply_color_lut(theirs.pixel_array, theirs))


@pytest.mark.corpus
def test_broken_files_leave_nothing_in_the_memory_of_the_process_that_sent_them(decoder: Decoder, corpus: Path) -> None:
    before_bytes = psutil.Process().memory_info().rss
    for path in sorted((corpus / "broken").glob("*.dcm")):
        outcome_of(decoder, path.read_bytes())
    assert psutil.Process().memory_info().rss - before_bytes < PARENT_GROWTH_BYTES


@pytest.mark.corpus
def test_a_refusal_repeats_nothing_of_the_file(decoder: Decoder, corpus: Path) -> None:
    for path in sorted((corpus / "broken").glob("*.dcm")):
        try:
            decoder.decode(path.read_bytes(), timeout_s=TIMEOUT_S)
        except RejectedInput as refusal:
            told = f"{refusal} {refusal.facts}".lower()
            assert "compressedsamples" not in told  # the patient of the files that these derive from
            assert "etc/passwd" not in told
