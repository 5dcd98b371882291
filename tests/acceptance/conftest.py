"""One deployment for all acceptance tests: real processes, real servers, real DICOM."""

from collections.abc import Callable, Iterator, Sequence
from uuid import uuid4

import pytest

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from pipeline.persistence.ledger.admission import ApiKey, add_api_key, add_tenant
from pipeline.persistence.ledger.engine import open_ledger
from tests.acceptance.receiver import Receiver, running_receiver
from tests.acceptance.running import Deployment, Door, running_deployment
from workers.gateway.keys import Scope, hash_key, new_key_text

MakeDoor = Callable[..., Door]
"""(tenant, *scopes)"""


@pytest.fixture(scope="session")
def deployment() -> Iterator[Deployment]:
    """`secondread up` with nothing configured but free ports and callbacks to this machine."""
    with running_deployment() as running:
        yield running


@pytest.fixture
def door(deployment: Deployment) -> Door:
    """The HTTP door with the local tenant's key."""
    return deployment.door


@pytest.fixture(scope="session")
def studies() -> Sequence[bytes]:
    """Sixteen made-up ultrasound images, each of a study of its own, with one lesion and a spacing of 0.1 mm."""
    return [phantom_instance(phantom(seed)[0], PhantomStudy(name=f"study-{seed}")) for seed in range(16)]


@pytest.fixture(scope="session")
def small_studies() -> Sequence[bytes]:
    """Eight small ones, for tests that send hundreds."""
    images = [phantom(seed, rows_px=200, columns_px=160)[0] for seed in range(8)]
    return [phantom_instance(image, PhantomStudy(name=f"small-{number}")) for number, image in enumerate(images)]


@pytest.fixture(scope="session")
def make_door(deployment: Deployment) -> Iterator[MakeDoor]:
    """Makes a key of any tenant with any scopes, and the door that it opens."""
    ledger = open_ledger(deployment.environment["SECONDREAD_DATABASE_URL"], connections=1)
    doors: list[Door] = []

    def make(tenant: str, *scopes: Scope) -> Door:
        text = new_key_text()
        tenant_id = add_tenant(ledger, uuid4(), tenant)
        add_api_key(ledger, ApiKey(uuid4(), tenant_id, frozenset(scopes)), name="test", key_hash=hash_key(text))
        doors.append(Door(deployment.access.url, text))
        return doors[-1]

    yield make
    for door in doors:
        door.close()
    ledger.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook receiver that answers 200."""
    with running_receiver() as listening:
        yield listening
