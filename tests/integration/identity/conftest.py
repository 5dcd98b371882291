"""The house in which cases are exchanged: a real ledger, Valkey, tensor store and upload folder, and a small model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from migrations.run import migrate
from pipeline.inference.seeded import write_seeded_model
from schemas.instance import InstanceHeader
from tests.headers import breast_ultrasound
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
    return breast_ultrasound(rows_px=SHAPE_PX[0], columns_px=SHAPE_PX[1])


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
