"""The report of a case: what the clinician and the integrator read. Published as JSON Schema."""

from typing import Final, Literal
from uuid import UUID, uuid5

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen
from schemas.instance import SpacingSource
from schemas.model_card import CodedConcept

REPORT_SCHEMA_VERSION: Final = "1.1"

ResultKind = Literal["preliminary", "final", "amended"]
Outcome = Literal["findings", "nothing_found", "not_assessable", "not_applicable", "not_yet_read"]
ImageStatus = Literal["findings", "nothing_found", "not_assessable", "not_applicable", "unreadable", "not_yet_read"]
PreliminaryReason = Literal["inference-wait", "deadline"]
LengthUnit = Literal["mm", "px"]


class Box(Frozen):
    """A bounding box on the source image, in pixels from its top left corner."""

    top_px: int
    left_px: int
    height_px: int
    width_px: int


class Measurement(Frozen):
    """One number with its unit (UCUM; `px` and `px2` where the image has no spacing)."""

    name: Literal["area", "long_axis", "short_axis", "box_height", "box_width", "mean_value"]
    value: float
    unit: str


class Finding(Frozen):
    """One claim with place and score."""

    number: int = Field(ge=1)
    """Counts the findings of the report, largest first within an image."""
    tracking_uid: str
    """Stable over revisions of one case."""
    concept: CodedConcept
    category: CodedConcept
    site: CodedConcept
    laterality: str | None = None
    box: Box
    centroid_px: tuple[float, float]
    """(row, column) on the source image."""
    measurements: tuple[Measurement, ...]
    probability: float = Field(ge=0, le=1)
    """Mean of the model's probability map inside the outline."""
    is_suspicious: bool
    """The malignancy score of the image reaches the card's threshold."""


class ImageReading(Frozen):
    """What was found in one frame of one instance."""

    sop_instance_uid: str | None
    series_instance_uid: str | None = None
    frame: int = Field(ge=1)
    status: ImageStatus
    reason: str | None = None
    """A code, where the image was not read."""
    scores: dict[str, float] = Field(default_factory=dict)
    """The model's scores by their names in the card."""
    length_unit: LengthUnit | None = None
    spacing_mm: tuple[float, float] | None = None
    spacing_source: SpacingSource | None = None
    findings: tuple[Finding, ...] = ()
    below_threshold: tuple[Box, ...] = ()
    """Regions that the model outlined although its presence score stays under the card's threshold: no findings."""
    warnings: tuple[str, ...] = ()
    digest: str
    """SHA-256 of the received object."""
    fingerprint: str | None = None
    """SHA-256 of the model input."""
    artefacts: dict[str, str] = Field(default_factory=dict)
    """Name (`image-1/overlay.png`, `image-1/probability.png`) to SHA-256 of its bytes; fetched below the case's address."""


class Algorithm(Frozen):
    """Who computed it, exactly."""

    name: str
    version: str
    manufacturer: str
    device_uid: str
    weights_sha256: str
    product_version: str
    """The version of secondread."""
    thresholds: dict[str, float]


class BatchRecord(Frozen):
    """Where in which batch it was computed: a reading must be reproducible."""

    batch_id: str
    size: int
    position: int
    fired_because: str
    device: str
    precision: str = "float32"
    """Of the network's arithmetic."""
    forward_s: float


class Report(Frozen):
    """One version of a case's result."""

    schema_version: Literal["1.1"] = REPORT_SCHEMA_VERSION
    case_id: str
    version: int = Field(ge=1)
    kind: ResultKind
    verification: Literal["unverified", "verified"] = "unverified"
    outcome: Outcome
    summary: str
    """One sentence for a human."""
    is_complete: bool
    """Every image of the case was read."""
    study_instance_uid: str | None
    images: tuple[ImageReading, ...]
    preliminary_reason: PreliminaryReason | None = None
    """Why the answer is preliminary: the case still waits for the model, or its deadline is here. The final follows as a new version."""
    algorithm: Algorithm | None = None
    """None in a preliminary result: no model has read the case."""
    batch: BatchRecord | None = None
    input_digest: str | None
    """SHA-256 over the received objects' digests, in order: the root of the digest chain. None where nothing was fetched yet."""
    model_input_digest: str | None = None
    model_output_digest: str | None = None
    limits: tuple[str, ...]
    """The model card's known limits."""
    notice: str = "Not for clinical use. A demonstration result, not verified by a clinician."
    created_at: AwareDatetime


def tracking_uid(case_id: UUID, image: int, finding: int) -> str:
    """A stable UID for one finding of one case: 2.25 and a name-based UUID (PS3.5 B.2)."""
    return f"2.25.{uuid5(case_id, f'{image}/{finding}').int}"
