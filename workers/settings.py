"""Every setting of the product, and the only reader of the environment.

`secondread settings` prints this page with the values in force; `docs/settings.md` is made from it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.flow import DEADLINE_S

MIB = 1024 * 1024
DEVICE = re.compile(r"cpu|cuda|cuda:\d+|cuda:(?:MIG|GPU)-[0-9A-Za-z/-]+")


def split_devices(device: str) -> tuple[str, ...]:
    """The devices of a list that is written with commas."""
    return tuple(each.strip() for each in device.split(","))


def _state_dir() -> Path:
    return Path("~/.local/state/secondread").expanduser()


class Settings(BaseSettings):
    """Read once when a process starts; rooms get values."""

    model_config = SettingsConfigDict(env_prefix="SECONDREAD_", frozen=True, use_attribute_docstrings=True)

    redis_url: SecretStr | None = None
    """Redis or Valkey for queues and the waiting line, as redis://[:password@]host:port/db. Unset: our own embedded Valkey."""
    database_url: SecretStr | None = None
    """The ledger, as postgresql://user:password@host:port/database. Unset: our own embedded PostgreSQL."""
    state_dir: Path = Field(default_factory=_state_dir)
    """Where the embedded servers, uploads, results' pictures and logs lie."""
    uploads_url: str | None = None
    """Where received instances are kept: any fsspec URL, such as s3://bucket/prefix. Unset: a folder in `state_dir`."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Places that a client may name instead of uploading: JSON object of name to fsspec URL. Clients never send URLs."""
    models_dir: Path | None = None
    """Folder of model folders. Unset: the model that comes with the product."""
    tensor_dir: Path | None = None
    """Folder of the tensor store; must be in memory. Unset: a folder in /dev/shm named for `state_dir`."""
    tensor_capacity_bytes: PositiveInt = 1024 * MIB
    """Most bytes that the tensor store holds; the intake stops pulling when it is full."""

    gateway_host: str = "127.0.0.1"
    """Address that the HTTP door listens on."""
    gateway_port: int = Field(default=8642, ge=0, le=65535)
    """Port of the HTTP door; 0 takes a free one."""
    public_url: str | None = None
    """The HTTP door as callers reach it, for links in callbacks. Unset: its own address."""
    metrics_port: int = Field(default=8643, ge=0, le=65535)
    """Port of /livez, /readyz and /metrics; 0 takes a free one. Keep it inside the house."""
    max_body_bytes: PositiveInt = 256 * MIB
    """Largest request body; larger ones get 413."""
    max_instances: PositiveInt = 64
    """Most DICOM instances of one case."""

    deadline_s: PositiveFloat = DEADLINE_S
    """From acceptance to the answer. A client may ask for less, never for more."""
    preliminary_after_s: PositiveFloat = 10.0
    """Wait for the model after which the client gets an explicit preliminary answer; the case stays in line."""
    answer_reserve_s: PositiveFloat = 2.0
    """This long before its deadline (a fifth of the time at most) a case without an answer gets a preliminary one."""
    batch_window_s: NonNegativeFloat = 2.0
    """Longest that an idle device is held back for company: a ceiling, not a wait."""
    batch_images: PositiveInt = 16
    """Most images in a batch: a ceiling too."""

    intake_threads: PositiveInt = 4
    """Cases that the intake process works on at once."""
    reporting_threads: PositiveInt = 4
    """Cases that the reporting process works on at once."""
    delivery_threads: PositiveInt = 8
    """Callbacks in flight at once."""
    decode_children: PositiveInt = 2
    """Child processes that parse and decode DICOM."""
    decode_memory_bytes: PositiveInt = 1536 * MIB
    """Address space of one decode child."""
    decode_pixel_bytes: PositiveInt = 512 * MIB
    """Most bytes of pixels that one instance may decode to."""
    decode_timeout_s: PositiveFloat = 5.0
    """Longest that one instance may take to decode."""

    device: str = "cpu"
    """Where the model runs: `cpu`, `cuda:0`, `cuda:MIG-<uuid>` (a slice) or `cuda:GPU-<uuid>`; several by commas, one process each.
    docs/devices.md says which to choose."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What networks compute in, where a model's card allows it and its golden set confirms it at each batch size; else float32."""
    device_memory_fraction: float = Field(default=0.9, gt=0, le=1)
    """Share of a CUDA device's memory that one inference process may take. A batch beyond it is split; a neighbour is not starved."""
    inference_workers: PositiveInt = 1
    """Inference processes that `secondread up` starts for each device of `device`."""
    inference_limit_s: PositiveFloat = 5.0
    """Longest that a batch may run, or three times its measured time where that is longer. Then the model hangs: the process ends
    and is started again, and each of the batch's cases is read by itself."""
    torch_threads: PositiveInt = 1
    """Threads of one forward pass on a CPU. More than one helps only where cores are idle."""

    webhook_allow_networks: tuple[str, ...] = ()
    """Private networks (CIDR) that callbacks may go to, as a JSON list; public addresses need no entry."""
    webhook_allow_http: bool = False
    """Let callbacks go over plain http. For receivers inside the house only."""

    metrics_dir: Path | None = None
    """Folder where the processes of one host add up their metrics; the supervisor sets it, with PROMETHEUS_MULTIPROC_DIR."""
    ready_file: Path | None = None
    """Written when this process is ready to work; the supervisor sets it for each process that it starts."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe event that is logged."""
    log_format: Literal["json", "console"] = "json"
    """One JSON object a line, or lines for a human."""

    @field_validator("device")
    @classmethod
    def _names_devices(cls, device: str) -> str:
        odd = [each for each in split_devices(device) if not DEVICE.fullmatch(each)]
        if odd:
            raise ValueError(
                f"no device is called {', '.join(odd) or 'nothing'}: write cpu, cuda:<number> or cuda:MIG-<uuid>, several by commas"
            )
        return device

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device of `device`, in its order; one that stands twice has twice the processes."""
        return split_devices(self.device)

    @model_validator(mode="after")
    def _ceilings_fit_the_deadline(self) -> Self:
        if not self.batch_window_s < self.deadline_s:
            raise ValueError("SECONDREAD_BATCH_WINDOW_S must be below SECONDREAD_DEADLINE_S")
        return self

    def as_environment(self) -> dict[str, str]:
        """Write the settings as variables for a child process, whose whole environment this and `bare_environment` are."""
        return {f"SECONDREAD_{name.upper()}": _as_text(value) for name, value in self if value is not None}


class ClientSettings(BaseSettings):
    """What the command needs to find a door: read by `secondread submit` and its like, on machines without a server too."""

    model_config = SettingsConfigDict(env_prefix="SECONDREAD_", frozen=True, use_attribute_docstrings=True)

    url: str | None = None
    """The HTTP door that the command talks to, as http://host:port. Unset: the one that `secondread up` started on this machine."""
    api_key: SecretStr | None = None
    """The API key for `SECONDREAD_URL`. Unset: the key that `secondread up` made for this machine's own door, and for that alone."""
    state_dir: Path = Field(default_factory=_state_dir)
    """Where `secondread up` leaves the address and the key of this machine's door."""


class FlowerSettings(BaseSettings):
    """How `secondread flower` shows the queues."""

    model_config = SettingsConfigDict(env_prefix="SECONDREAD_FLOWER_", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address that Flower listens on. Its /metrics and /healthcheck ask for no password: keep it inside the house."""
    port: int = Field(default=5555, ge=1, le=65535)
    """Port that Flower listens on."""
    user: str = Field(default="secondread", pattern=r"^[^:]+$")
    """Name to log in with."""
    password: SecretStr | None = None
    """Password to log in with. Unset: a new one at each start, printed once."""


def _as_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict | tuple):
        return json.dumps(value)
    return str(value)


KEPT_VARIABLES = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    # How torch's allocator keeps a device's memory. Versions differ in which of the two they read first: set both alike.
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
)


TUNED_VARIABLES = {
    # Threads that spin while they wait would eat the cores of the other processes.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Images come and go many times a second: memory that is given back to the kernel each time is faulted in again, page by page.
    "MALLOC_MMAP_THRESHOLD_": str(4 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(24 * MIB),
    "MALLOC_ARENA_MAX": "2",
    "PYTHONUNBUFFERED": "1",
}

# A batch's layers are tens of megabytes each; the next batch needs the same again.
INFERENCE_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": str(64 * MIB), "MALLOC_TRIM_THRESHOLD_": str(512 * MIB)}


def visible_devices() -> str | None:
    """Which devices the NVIDIA driver shows to this process; None where all."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def bare_environment() -> dict[str, str]:
    """What a child process needs besides its settings; nothing else of ours is inherited."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return environment | TUNED_VARIABLES
