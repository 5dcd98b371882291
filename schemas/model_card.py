"""What a model is, what it may be shown, and what its answers mean: the card of a model folder."""

from typing import Literal

from pydantic import Field

from schemas.frozen import Frozen

Precision = Literal["float32", "bfloat16", "float16"]
"""Of a network's convolutions and products."""


class CodedConcept(Frozen):
    """A code, as DICOM writes one: value, scheme and meaning."""

    value: str = Field(max_length=16)
    scheme: str = Field(max_length=16)
    """Coding Scheme Designator: SCT, DCM, UCUM, ..."""
    meaning: str = Field(max_length=64)


class ModelInput(Frozen):
    """The tensor that the network takes."""

    side_px: int = Field(ge=16, le=4096)
    """Letterboxed to a square of this side, aspect true, zero padding."""
    channels: Literal[1] = 1
    dtype: Literal["uint8"] = "uint8"
    """How it is stored and moved; the device widens it."""
    scale: float
    """Multiplied in on the device: 1/255 maps uint8 to 0..1."""
    window: Literal["header", "full_range", "percentile"] = "header"
    """How modality values become display values where the header states no window: its stored range or percentiles."""
    max_images: int = Field(ge=1, default=16)
    """Images (frames) that one case may hold."""


class Applicability(Frozen):
    """Which images the model may be shown. Everything else is answered "not applicable"."""

    modalities: tuple[str, ...]
    body_parts: tuple[str, ...]
    """Body Part Examined values, upper case."""
    body_part_may_be_unstated: bool = False


class Thresholds(Frozen):
    """Operating points, chosen on data that the held-out figures do not contain."""

    mask: float = Field(gt=0, lt=1)
    presence: float = Field(gt=0, lt=1)
    malignancy: float = Field(gt=0, lt=1)
    min_area_px: int = Field(ge=1)
    """Smaller components are noise; counted on the source image."""


class FindingCodes(Frozen):
    """The reviewed code table of this model's findings."""

    finding: CodedConcept
    category: CodedConcept
    site: CodedConcept
    source: str
    """Where the codes were chosen from: context groups of the standard, and who reviewed them."""


class ModelCard(Frozen):
    """`card.toml` of a model folder, or what it adds to a MONAI bundle's `metadata.json`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{1,62}$")
    version: str = Field(pattern=r"^[0-9A-Za-z.+-]{1,32}$")
    title: str
    manufacturer: str
    intended_use: str
    licence: str
    data: str
    """What it was trained and measured on, with the citation that the data's licence asks for."""
    device_uid: str = Field(pattern=r"^[0-9.]{1,64}$")
    """Names this very version of the algorithm (IHE AIR: changes with every retraining)."""
    network: str | None = None
    """A network of `pipeline/inference/networks/`, for weights that are safetensors; the other formats bring their own graph."""
    network_arguments: dict[str, int | tuple[int, ...]] = Field(default_factory=dict)
    weights: str = Field(pattern=r"^(models/)?[0-9A-Za-z_-][0-9A-Za-z._-]*\.(safetensors|pt2|ts)$")
    """`.safetensors`, `.pt2` (torch.export) or `.ts` (TorchScript); never a pickle."""
    weights_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    golden: str | None = Field(default=None, pattern=r"^[0-9A-Za-z._-]+\.npz$")
    golden_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    precisions: tuple[Precision, ...] = ("float32",)
    """What the network may run in besides float32; the golden set still decides, at each batch size."""
    input: ModelInput
    applicability: Applicability
    scores: tuple[str, ...]
    """Names of the score outputs, in the network's order."""
    thresholds: Thresholds
    codes: FindingCodes
    limits: tuple[str, ...]
    """Known limits, in sentences that a clinician reads."""
    figures: dict[str, float | str] = Field(default_factory=dict)
    """Held-out and external figures, with their names."""

    @property
    def reference(self) -> str:
        """`name:version`: how messages, rows and results name the model."""
        return f"{self.name}:{self.version}"
