"""A model that hangs for ever on one image, or loses its device: its process is replaced, and who was to blame is found."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from migrations.run import migrate
from pipeline.inference.seeded import write_seeded_model
from pipeline.persistence.ledger.engine import Ledger, open_ledger, run
from pipeline.tensors.shared_memory import SharedMemoryStore
from tests.acceptance.running import eventually
from tests.integration.workers.prepared_cases import Image, PreparedCases
from tests.integration.workers.stub_cases import StubCases
from tests.patience import PATIENCE
from workers.doorbell import place_in_line
from workers.embedded.postgres import EmbeddedPostgres
from workers.inference import DEVICE_LOST
from workers.settings import Settings, bare_environment
from workers.supervisor import ProcessSpec, ProcessState, Supervisor
from workers.wiring import open_services

pytestmark = pytest.mark.services

SIDE_PX, COMPANY, MIB = 32, 6, 1024 * 1024
LIMIT_S = 1.0
"""A run of this network takes milliseconds."""
PATIENCE_S = 180.0
"""For three starts of a process that loads torch, on a slow machine."""
BACK_WITHIN_S = 3 * 15.0 * PATIENCE
"""The promise (B7) is 15 s from the hang until the pool works again; three times that for a machine that does other things too."""
AWAY = (ProcessState.DIED, ProcessState.READY)
ROOT = Path(__file__).resolve().parents[3]
CASES = text("SELECT id, state, attempt, failure FROM cases")
CODES = text("SELECT case_id, code FROM case_events WHERE code IS NOT NULL ORDER BY id")


@pytest.fixture
def settings(postgres: EmbeddedPostgres, clean_redis: str, tmp_path: Path) -> Settings:
    database = postgres.create_database("hanging_model_tests")
    migrate(database)
    return Settings(
        database_url=SecretStr(database),
        redis_url=SecretStr(clean_redis),
        state_dir=tmp_path,
        tensor_dir=tmp_path / "tensors",
        models_dir=tmp_path / "models",
        inference_limit_s=LIMIT_S,
    )


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    assert settings.database_url is not None
    ledger = open_ledger(settings.database_url.get_secret_value(), connections=1)
    StubCases(ledger).empty()
    yield ledger
    ledger.close()


def spec(settings: Settings, name: str, *command: str) -> ProcessSpec:
    ready = settings.state_dir / f"{name}.ready"
    environment = settings.model_copy(update={"ready_file": ready}).as_environment() | bare_environment()
    return ProcessSpec(name=name, argv=(sys.executable, "-m", *command), env=environment, ready=ready, cwd=ROOT)


@contextmanager
def stops_once(is_over: Callable[[], bool]) -> Iterator[None]:
    """Ask this process's supervisor to stop when it is over, or when that takes too long."""

    def wait() -> None:
        eventually(is_over, within_s=PATIENCE_S)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def rows_of(ledger: Ledger) -> dict[UUID, Any]:
    return {row.id: row for row in run(ledger.relaxed, CASES)}


def codes_of(ledger: Ledger) -> dict[UUID, list[str]]:
    """What each case's way back to a queue, or its end, was due to."""
    codes: dict[UUID, list[str]] = {}
    for row in run(ledger.relaxed, CODES):
        codes.setdefault(row.case_id, []).append(row.code)
    return codes


def images_with(deadly: Image) -> Sequence[Image]:
    noise = np.random.default_rng(1).integers(0, 256, (COMPANY, *deadly.shape), dtype=np.uint8)
    return [deadly, *noise]


def test_who_hangs_the_model_is_set_aside_after_two_strikes_and_its_company_is_read(settings: Settings, ledger: Ledger) -> None:
    assert settings.models_dir is not None
    assert settings.tensor_dir is not None
    card = write_seeded_model(settings.models_dir / "seeded", seed=1, side_px=SIDE_PX, widths=(8, 8, 8, 8))
    deadly = np.full((1, SIDE_PX, SIDE_PX), 7, np.uint8)
    cases = PreparedCases(ledger, SharedMemoryStore(settings.tensor_dir, capacity_bytes=MIB), card.reference)
    suspect, *company = (rung.case_id for rung in cases.bring(images_with(deadly)))
    changes: list[tuple[str, ProcessState]] = []
    moments: list[float] = []

    def note(name: str, state: ProcessState) -> None:
        changes.append((name, state))
        moments.append(time.monotonic())

    specs = [
        spec(settings, "inference", "tests.integration.workers.hanging_worker", hashlib.sha256(deadly.tobytes()).hexdigest()),
        spec(settings, "sweeper", "workers.sweeper"),
    ]
    with Supervisor(specs, log_folder=settings.state_dir, on_change=note) as supervisor:
        supervisor.start()
        with stops_once(lambda: {row.state for row in rows_of(ledger).values()} <= {"awaiting_report", "failed"}):
            supervisor.watch()

    rows, codes = rows_of(ledger), codes_of(ledger)
    log = (settings.state_dir / "inference.log").read_text()
    assert {rows[each].state for each in company} == {"awaiting_report"}, log
    assert (rows[suspect].state, rows[suspect].failure["code"]) == ("failed", "quarantined")
    # Once in company, once alone; and each time the process returned what it had, so no lease had to run out.
    assert codes[suspect] == ["model-stood-still", "retry", "model-stood-still", "quarantined"]
    assert changes.count(("inference", ProcessState.DIED)) == 2, log
    assert {code for each in company for code in codes[each]} <= {"model-stood-still", "retry", "suspects-company"}
    died, ready = ([at for change, at in zip(changes, moments, strict=True) if change == ("inference", state)] for state in AWAY)
    assert LIMIT_S + max(back - gone for gone, back in zip(died, ready[1:], strict=True)) < BACK_WITHIN_S


def test_a_process_that_loses_its_device_returns_its_batch_and_ends_with_a_code_of_its_own(settings: Settings, ledger: Ledger) -> None:
    """given no sweeper, then the leases did not have to run out"""
    assert settings.models_dir is not None
    assert settings.tensor_dir is not None
    card = write_seeded_model(settings.models_dir / "seeded", seed=1, side_px=SIDE_PX, widths=(8, 8, 8, 8))
    deadly = np.full((1, SIDE_PX, SIDE_PX), 7, np.uint8)
    cases = PreparedCases(ledger, SharedMemoryStore(settings.tensor_dir, capacity_bytes=MIB), card.reference)
    rungs = cases.bring(images_with(deadly))
    worker = spec(settings, "inference", "tests.integration.workers.hanging_worker", hashlib.sha256(deadly.tobytes()).hexdigest(), "lost")
    with open_services(settings, role="test") as services:
        now = services.clock.now()
        services.line(card.reference).join(place_in_line(rung, accepted_at=now, image_count=1, now_s=now.timestamp()) for rung in rungs)

    with (settings.state_dir / "inference.log").open("wb") as log:
        ended = subprocess.run(worker.argv, env=worker.env, cwd=worker.cwd, stdout=log, stderr=log, timeout=PATIENCE_S)

    assert ended.returncode == DEVICE_LOST, (settings.state_dir / "inference.log").read_text()
    assert {row.state for row in rows_of(ledger).values()} == {"awaiting_inference"}
    assert list(codes_of(ledger).values()) == [["device-lost"]] * (1 + COMPANY)
