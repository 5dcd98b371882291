"""The house in which cases are exchanged: a real ledger, Valkey, tensor store and upload folder, and a small model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from migrations.run import migrate
from pipeline.inference.seeded import write_seeded_model
from schemas.instance import InstanceHeader
from tests.integration.identity.house import SHAPE_PX, House
from workers.app import make_app
from workers.embedded.postgres import EmbeddedPostgres
from workers.group import Watch
from workers.leases import LeaseKeeper
from workers.settings import Settings
from workers.wiring import open_services


@pytest.fixture(scope="module")
def database(postgres: EmbeddedPostgres) -> str:
    url = postgres.create_database("identity_tests")
    migrate(url)
    return url


@pytest.fixture
def header() -> InstanceHeader:
    """A left breast in ultrasound, without spacing."""
    return InstanceHeader(
        sop_class_uid="1.2.840.10008.5.1.4.1.1.6.1",
        sop_instance_uid="1.2.3.4",
        study_instance_uid="1.2.3",
        series_instance_uid="1.2.3.1",
        transfer_syntax_uid="1.2.840.10008.1.2.1",
        modality="US",
        body_part="BREAST",
        laterality="L",
        rows_px=SHAPE_PX[0],
        columns_px=SHAPE_PX[1],
        frame_count=1,
        samples_per_pixel=1,
        photometric_interpretation="MONOCHROME2",
        bits_stored=8,
        is_signed=False,
    )


@pytest.fixture
def house(database: str, clean_redis: str, tmp_path: Path, header: InstanceHeader) -> Iterator[House]:
    models = tmp_path / "models"
    card = write_seeded_model(models / "small", seed=1, side_px=32, widths=(4, 4, 4, 4))
    settings = Settings(
        database_url=SecretStr(database),
        redis_url=SecretStr(clean_redis),
        state_dir=tmp_path,
        tensor_dir=tmp_path / "tensors",
        models_dir=models,
    )
    with make_app(settings) as app, open_services(settings, role="identity") as services:
        leases, watch = LeaseKeeper(services.ledger), Watch()
        yield House(services, app, header, card, leases, watch)
        watch.close()
        leases.close()
