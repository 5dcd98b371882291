"""Typed, strict reading of single attributes, straight from their bytes.

Not through pydicom's conversion: that guesses (a decimal comma, a wrong VR), raises a different exception for each
kind of junk, and costs more than the rest of the header.
"""

import math
import re
import struct
from collections.abc import Iterator
from typing import Final

from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataelem import DataElement, RawDataElement
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from pipeline.dicom.errors import BadUid, BadValue, CorruptHeader, MissingTag
from pipeline.dicom.reading.verdict import foreign_errors_as

_INTEGER_BYTES: Final = {"US": 2, "SS": 2, "UL": 4, "SL": 4}
_FLOAT_FORMATS: Final = {"FD": "d", "FL": "f"}
_TEXT_VRS: Final = frozenset({"DS", "IS", "LO", "SH", "CS", "UT", "LT", "ST", "UC", "UI"})
_INTEGER_TEXT: Final = re.compile(r"[+-]?[0-9]{1,12}")
_DECIMAL_TEXT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_CODE_TEXT: Final = re.compile(r"[A-Z0-9 _]{1,16}")
_UID_TEXT: Final = re.compile(r"[0-9]+(\.[0-9]+)+")
UID_LENGTH: Final = 64


def is_uid(text: str) -> bool:
    """Whether `text` is a UID by its characters and length (PS3.5 section 9.1)."""
    return len(text) <= UID_LENGTH and _UID_TEXT.fullmatch(text) is not None


class Elements:
    """One data set, or one item of a sequence, read attribute by attribute; attributes go by their keyword."""

    def __init__(self, dataset: Dataset, *, is_little_endian: bool) -> None:
        self.dataset = dataset
        self._is_little_endian = is_little_endian

    def has(self, keyword: str) -> bool:
        """Whether the attribute is there, empty or not."""
        return _tag_of(keyword) in self.dataset

    def code(self, keyword: str) -> str | None:
        """The first value of a Code String, upper case; None where absent or empty.

        Raises
        ------
        BadValue
            Characters or a length that CS does not allow.
        """
        values = self.codes(keyword)
        return (values[0] or None) if values else None

    def codes(self, keyword: str) -> tuple[str, ...]:
        """All values of a Code String, upper case, as `code` reads one; empty where absent."""
        text = self._text(keyword)
        if not text:
            return ()
        values = tuple(part.strip().upper() for part in text.split("\\"))
        if not all(part == "" or _CODE_TEXT.fullmatch(part) for part in values):
            raise bad_value(keyword, "is not a code string")
        return values

    def uid(self, keyword: str) -> str | None:
        """A unique identifier; None where absent or empty.

        Raises
        ------
        BadUid
            It is none. Nothing may be stored or named by it.
        """
        text = self._text(keyword)
        if not text:
            return None
        if not is_uid(text):
            raise BadUid(f"{keyword} is not a unique identifier", **_facts(keyword))
        return text

    def integer(self, keyword: str, *, is_signed: bool = False) -> int | None:
        """One integer, binary or an Integer String; None where absent or empty.

        Raises
        ------
        BadValue
            Another VR than the attribute's, another length, or no number.
        """
        vr, value = self._raw(keyword)
        if not value:
            return None
        expected = dictionary_VR(_tag_of(keyword))
        if expected == "IS":
            text = _strip(value)
            if not _INTEGER_TEXT.fullmatch(text):
                raise bad_value(keyword, "is not an integer")
            return int(text)
        allowed = expected.split(" or ")
        if vr not in (*allowed, "UN", None) or len(value) != _INTEGER_BYTES[allowed[0]]:
            raise bad_value(keyword, "is not one binary integer")
        return int.from_bytes(value, "little" if self._is_little_endian else "big", signed=is_signed or allowed[0].startswith("S"))

    def decimals(self, keyword: str) -> tuple[float, ...] | None:
        """The numbers of a Decimal String or of binary floats; None where absent or empty.

        Raises
        ------
        BadValue
            Anything but finite numbers: a decimal comma is not guessed at.
        """
        vr, value = self._raw(keyword)
        if not value:
            return None
        form = _FLOAT_FORMATS.get(dictionary_VR(_tag_of(keyword)))
        numbers = self._text_numbers(keyword, vr, value) if form is None else self._binary_numbers(keyword, form, value)
        if not all(map(math.isfinite, numbers)):
            raise bad_value(keyword, "is not finite")
        return numbers

    def items(self, keyword: str) -> Iterator["Elements"]:
        """The items of a sequence, in order; none where it is absent."""
        tag = _tag_of(keyword)
        if tag not in self.dataset:
            return
        with foreign_errors_as(CorruptHeader, f"the sequence {keyword} cannot be read"):
            value = self.dataset[tag].value
            if not isinstance(value, Sequence):
                raise bad_value(keyword, "is not a sequence")
            items = list(value)
        for item in items:
            yield Elements(item, is_little_endian=self._is_little_endian)

    def _raw(self, keyword: str) -> tuple[str | None, bytes]:
        element: object = self.dataset.get_item(_tag_of(keyword))
        if element is None or (isinstance(element, DataElement) and element.is_empty):
            return None, b""
        if not isinstance(element, RawDataElement):
            raise bad_value(keyword, "is a sequence or has an undefined length")
        return element.VR, bytes(element.value or b"")

    def _text(self, keyword: str) -> str:
        return _strip(self._raw(keyword)[1])

    def _binary_numbers(self, keyword: str, form: str, value: bytes) -> tuple[float, ...]:
        size = struct.calcsize(form)
        if len(value) % size:
            raise bad_value(keyword, "has a length that no number has")
        order = "<" if self._is_little_endian else ">"
        return struct.unpack(f"{order}{len(value) // size}{form}", value)

    def _text_numbers(self, keyword: str, vr: str | None, value: bytes) -> tuple[float, ...]:
        parts = [part.strip() for part in _strip(value).split("\\")]
        if vr not in (*_TEXT_VRS, "UN", None) or not all(_DECIMAL_TEXT.fullmatch(part) for part in parts):
            raise bad_value(keyword, "is not a decimal string")
        return tuple(float(part) for part in parts)


def required_integer(elements: Elements, keyword: str) -> int:
    """An integer that must be there.

    Raises
    ------
    MissingTag, BadValue
    """
    value = elements.integer(keyword)
    if value is None:
        raise missing(keyword)
    return value


def missing(keyword: str) -> MissingTag:
    """The refusal for an absent or empty attribute."""
    return MissingTag(f"{keyword} is missing or empty", **_facts(keyword))


def bad_value(keyword: str, why: str, **facts: int | float) -> BadValue:
    """The refusal for a value that cannot be used, for callers that know why."""
    return BadValue(f"{keyword} {why}", **_facts(keyword), **facts)


def _tag_of(keyword: str) -> int:
    tag = tag_for_keyword(keyword)
    if tag is None:
        raise KeyError(keyword)
    return tag


def _facts(keyword: str) -> dict[str, str]:
    tag = _tag_of(keyword)
    return {"tag": f"({tag >> 16:04X},{tag & 0xFFFF:04X})", "name": keyword}


def _strip(value: bytes) -> str:
    return value.decode("ascii", errors="replace").strip(" \0")
