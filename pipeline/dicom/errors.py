"""Why an instance was refused: one class, one stable code and one advice for each kind of fault.

The facts name tags, ids and numbers of ours; they never repeat a value of the file, which may hold patient data.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pipeline.errors import RejectedInput, Unavailable

SEND_AGAIN = "Send the instance again from its source, and compare its size with the original."
ASK_THE_SENDER = "Have the sending system write this attribute as the standard asks (the facts name the tag), then submit again."


class EmptyFile(RejectedInput):
    """The instance has no bytes."""

    code = "empty-file"
    title = "The instance is empty"
    advice = SEND_AGAIN


class NotDicom(RejectedInput):
    """The bytes are something else: a web page, a picture, an archive."""

    code = "not-dicom"
    title = "The file is not a DICOM instance"
    advice = "Submit the DICOM Part 10 file itself: no archive, no picture, no sign-in page of a proxy."


class MissingFileMeta(RejectedInput):
    """A data set without the DICM prefix and the file meta group, so its encoding is not stated."""

    code = "missing-file-meta"
    title = "The file has no File Meta Information"
    advice = "Export the instance as a DICOM Part 10 file. We do not guess how pixels are encoded."


class EmptyDataset(RejectedInput):
    """Nothing follows the preamble or the file meta group."""

    code = "empty-dataset"
    title = "The file holds no data set"
    advice = SEND_AGAIN


class CorruptHeader(RejectedInput):
    """The data elements cannot be told apart."""

    code = "corrupt-header"
    title = "The data set cannot be read"
    advice = SEND_AGAIN


class Truncated(RejectedInput):
    """The file ends inside a data element before the pixels."""

    code = "truncated"
    title = "The file ends before its data set does"
    advice = SEND_AGAIN


class TruncatedPixels(RejectedInput):
    """There are fewer pixel bytes, or fewer frames, than the header declares."""

    code = "truncated-pixels"
    title = "Pixel Data is shorter than the header declares"
    advice = SEND_AGAIN


class CorruptPixels(RejectedInput):
    """The compressed pixels cannot be decoded, or are not the image that the header describes."""

    code = "corrupt-pixels"
    title = "Pixel Data cannot be decoded"
    advice = "Send the instance again; if it stays, ask the source for another transfer syntax, such as Explicit VR Little Endian."


class NoPixelData(RejectedInput):
    """An image object whose Pixel Data (7FE0,0010) is absent or empty."""

    code = "no-pixel-data"
    title = "The image has no Pixel Data"
    advice = "Fetch the whole instance: some systems send headers only."


class NotAnImage(RejectedInput):
    """A report, a plan, a waveform or another object without pixels."""

    code = "not-an-image"
    title = "The instance is not an image"
    advice = "Submit image instances only; leave reports, plans, presentation states and documents out."


class MissingTag(RejectedInput):
    """An attribute that we need is absent or empty."""

    code = "missing-tag"
    title = "A required attribute is missing"
    advice = ASK_THE_SENDER


class BadValue(RejectedInput):
    """An attribute holds something that the standard does not allow, or that contradicts another one."""

    code = "bad-value"
    title = "An attribute has a value that cannot be used"
    advice = ASK_THE_SENDER


class BadUid(RejectedInput):
    """A unique identifier that is none: other characters than digits and dots, or too long."""

    code = "bad-uid"
    title = "A unique identifier is not valid"
    advice = ASK_THE_SENDER


class BadDimensions(RejectedInput):
    """Rows or Columns is zero."""

    code = "bad-dimensions"
    title = "The image has no area"
    advice = ASK_THE_SENDER


class TooLarge(RejectedInput):
    """The declared or the inflated size is beyond the limit."""

    code = "too-large"
    title = "The instance is larger than this installation takes"
    advice = "Submit fewer frames in one instance, or ask the operator to raise the decode limit named in the facts."


class UnsupportedTransferSyntax(RejectedInput):
    """A transfer syntax outside the table of those we read."""

    code = "unsupported-transfer-syntax"
    title = "The transfer syntax is not supported"
    advice = "Ask the source for Explicit VR Little Endian or another supported transfer syntax."


class UnsupportedCodec(RejectedInput):
    """A variant inside a supported transfer syntax that no freely licensed codec decodes: 12-bit JPEG."""

    code = "unsupported-codec"
    title = "This variant of the compression is not supported"
    advice = "Ask the source for a lossless transfer syntax: 12-bit JPEG is not decoded here."


class DecodeTimedOut(RejectedInput):
    """Decoding took longer than its limit; the child that did it was ended."""

    code = "decode-timeout"
    title = "The instance took too long to decode"
    advice = "Submit fewer frames in one instance, or another transfer syntax."


class DecoderUnavailable(Unavailable):
    """No decode child was free in time, or none could be started. The instance is not at fault."""

    code = "decoder-unavailable"
    title = "No decoder was free in time"


REFUSALS: Final[Mapping[str, type[RejectedInput]]] = MappingProxyType(
    {
        refusal.code: refusal
        for refusal in (
            EmptyFile,
            NotDicom,
            MissingFileMeta,
            EmptyDataset,
            CorruptHeader,
            Truncated,
            TruncatedPixels,
            CorruptPixels,
            NoPixelData,
            NotAnImage,
            MissingTag,
            BadValue,
            BadUid,
            BadDimensions,
            TooLarge,
            UnsupportedTransferSyntax,
            UnsupportedCodec,
        )
    }
)
"""What a decode child may answer, by code."""
