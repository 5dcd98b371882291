"""What one pool leaves in the ledger for the next: handles and facts, never pixels.

These documents are read by code of the version before and of the one after: a field may be added with a default, and is
ignored by who does not know it; none is taken away or given another meaning before the version after next.
"""

from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.frozen import Frozen
from schemas.instance import InstanceHeader
from schemas.tensor import TensorHandle


class ReceivedInstance(Frozen):
    """One instance as the gateway or a source took it in."""

    key: str = Field(max_length=512)
    """Its name in the upload store, or below the named source. Ours, never the sender's."""
    digest: str | None = None
    """SHA-256 of the received bytes; None until they were fetched."""
    size_bytes: int | None = None


class CaseInput(Frozen):
    """What a case is about: the uploaded instances, or the place in a configured source."""

    source: str = "uploads"
    """`uploads`, or the name of a source in the settings."""
    instances: tuple[ReceivedInstance, ...]


class Placement(Frozen):
    """Where the source image lies inside the model's square: enough to undo the letterbox."""

    side_px: int
    top_px: int
    left_px: int
    rows_px: int
    """Rows that the scaled image takes in the square."""
    columns_px: int
    source_rows_px: int
    source_columns_px: int


class PreparedInstance(Frozen):
    """One instance after fetch and preprocess: either a header and its values, or why not."""

    digest: str
    """SHA-256 of the received bytes: the first link of the digest chain."""
    header: InstanceHeader | None = None
    stored: TensorHandle | None = None
    """Stored values (frame, row, column) or (frame, row, column, sample): for the overlay and the mean value."""
    failure: str | None = None
    """The code of the rejection, where the instance could not be read."""


ImageOutcome = Literal["ready", "not_applicable", "not_assessable"]


class PreparedImage(Frozen):
    """One frame of one instance, as the model will see it."""

    instance: int = Field(ge=0)
    """Index into `PreparedCase.instances`."""
    frame: int = Field(ge=1)
    """DICOM counts frames from 1."""
    outcome: ImageOutcome
    reason: str | None = None
    """A code, where the outcome is not `ready`."""
    row: int | None = None
    """Row in the model input tensor."""
    placement: Placement | None = None
    fingerprint: str | None = None
    """SHA-256 over the model input and what shaped it: equal inputs to one model are equal here."""


class PreparedCase(Frozen):
    """What intake leaves for inference and reporting."""

    model: str
    """`name:version` of the model card that shaped the input."""
    case_id: UUID | None = None
    """The case that it was made for; None in a row that an older version wrote."""
    instances: tuple[PreparedInstance, ...]
    images: tuple[PreparedImage, ...]
    model_input: TensorHandle | None = None
    """(image, channel, row, column) uint8; None where no image is ready."""


class InferredCase(Frozen):
    """What inference leaves for reporting."""

    model: str
    weights_digest: str
    probability: TensorHandle
    """(image, row, column) uint8, probability x 255, on the model's grid; rows as in the model input."""
    scores: tuple[tuple[float, ...], ...]
    """Per image, in the order of the card's `scores`, each 0 to 1."""
    model_input_digest: str | None = None
    """Digest of the model input that these rows were computed from; None in a row that an older version wrote."""
    batch_id: str
    batch_size: int
    """Images in the batch, all its cases together."""
    batch_position: int
    """This case's first row in the batch."""
    fired_because: str
    device: str
    precision: str = "float32"
    """Of the network's arithmetic; an older version knew no other."""
    forward_s: float


class CaseWork(Frozen):
    """The `work` column of a case: grows by one part a pool."""

    prepared: PreparedCase | None = None
    inferred: InferredCase | None = None
