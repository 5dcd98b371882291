"""Flower on the real queues: it shows the pools, the batches and the cases, and no patient; nor does anything else that is kept."""

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from tests.acceptance.receiver import Receiver, running_receiver
from tests.acceptance.running import Deployment, Door, Json, eventually
from workers.embedded.ports import free_port
from workers.settings import bare_environment

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[2]
SHORTLY_S = 30.0
POOLS = {"intake", "inference", "reporting", "delivery"}
WATCHER = ("watcher", "a password of this test")
CANARIES = ("Quetzal^Canary", "Quetzal", "CANARY-MRN-4711", "CANARY-ACC-0815", "quetzal-file")
"""Name, patient id, accession number and file name; no other text of the product holds them."""
PAGES = (
    "/",
    "/workers",
    "/tasks",
    "/tasks/datatable?draw=1&start=0&length=100&order[0][column]=0&order[0][dir]=asc&search[value]=&columns[0][data]=name",
    "/api/workers?refresh=true",
    "/api/tasks",
    "/api/task/types",
    "/metrics",
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")


@dataclass
class Flower:
    """One running `secondread flower`."""

    http: httpx.Client

    def workers(self) -> set[str]:
        """The pools that it knows, by the part of the worker's name before the host."""
        status: Json = self.http.get("/api/workers", params={"status": "true"}).json()
        return {name.partition("@")[0] for name, is_alive in status.items() if is_alive}

    def tasks(self, name: str) -> dict[str, Json]:
        """The tasks of one name, by their id."""
        found: dict[str, Json] = self.http.get("/api/tasks", params={"taskname": name}).json()
        return found


@pytest.fixture(scope="module")
def flower(deployment: Deployment) -> Iterator[Flower]:
    port = free_port()
    settings = {
        "SECONDREAD_STATE_DIR": str(deployment.state_dir),
        "SECONDREAD_FLOWER_PORT": str(port),
        "SECONDREAD_FLOWER_PASSWORD": WATCHER[1],
        "SECONDREAD_FLOWER_USER": WATCHER[0],
    }
    command = [sys.executable, "-m", "workers.cli.main", "flower"]
    with (
        subprocess.Popen(command, env=bare_environment() | settings, cwd=ROOT, stderr=subprocess.DEVNULL) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", auth=WATCHER, timeout=20, trust_env=False) as http,
    ):
        watching = Flower(http)
        try:
            assert eventually(lambda: _answers(http) and watching.workers() >= POOLS, within_s=SHORTLY_S)
            yield watching
        finally:
            process.send_signal(signal.SIGTERM)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/healthcheck").is_success
    except httpx.TransportError:
        return False


def patient_image(number: int) -> bytes:
    told = PhantomStudy(
        name=f"patient-{number}", patient_name=CANARIES[0], patient_id=CANARIES[2], accession_number=CANARIES[3], instance_number=number
    )
    return phantom_instance(phantom(number)[0], told)


def without_pixels(number: int) -> bytes:
    """An image of a patient that is refused: its pixels are cut off."""
    return patient_image(number)[:-1_000]


def everything_in(client: Any) -> bytes:
    """Every key and every value of a Redis, and what is packed in base64 inside of them."""
    keys: list[bytes] = list(client.scan_iter(count=1_000))
    raw = b"\n".join([*keys, *(part for key in keys for part in _values(client, key, client.type(key)))])
    return raw + b"\n".join(_unpacked(raw))


def _values(client: Any, key: bytes, kind: bytes) -> list[bytes]:
    read: dict[bytes, Callable[[], Iterable[bytes | None]]] = {
        b"string": lambda: [client.get(key)],
        b"list": lambda: client.lrange(key, 0, -1),
        b"hash": lambda: [part for pair in client.hgetall(key).items() for part in pair],
        b"zset": lambda: client.zrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
    }
    # A key that is gone meanwhile is of no kind and holds nothing.
    return [part for part in read[kind]() if part] if kind in read else []


def _unpacked(raw: bytes) -> Iterator[bytes]:
    for found in _BASE64.findall(raw):
        yield base64.b64decode(found + b"=" * (-len(found) % 4), validate=False)


@dataclass
class Kept:
    """Everything that was written, kept or shown while a patient's images were read."""

    texts: dict[str, bytes] = field(default_factory=dict)
    cases: Sequence[Json] = ()


@pytest.fixture(scope="module")
def kept(deployment: Deployment, flower: Flower) -> Kept:
    """Read images of a made-up patient: good ones, a broken one, a refused request; and collect what is left of them."""
    found, door = Kept(), deployment.door
    with running_receiver() as receiver, deployment.redis() as client:
        fields = {"webhook_endpoint_id": _endpoint(door, receiver)}
        with deployment.paused("inference"):
            accepted = [door.accepted(patient_image(number), fields=fields) for number in range(1, 5)]
            in_line = eventually(lambda: _all_in_line(door, accepted), within_s=SHORTLY_S)
            found.texts["redis, cases in line"] = everything_in(client)
        with deployment.paused("intake"):
            accepted += [door.accepted(patient_image(5), fields=fields), door.accepted(without_pixels(6), fields=fields)]
            found.texts["redis, cases in the queue"] = everything_in(client)
        found.cases = [door.ended(case["case_id"], within_s=SHORTLY_S) for case in accepted]
        receiver.wait_for(len(accepted))
        found.texts["callbacks"] = b"\n".join(delivery.body + repr(delivery.headers).encode() for delivery in receiver.got)
    assert in_line
    assert eventually(lambda: len(_of(flower.tasks("reporting.postprocess"), accepted)) >= 5, within_s=SHORTLY_S)
    found.texts |= {f"flower {page}": flower.http.get(page).content for page in PAGES}
    found.texts |= {f"flower /task/{task}": flower.http.get(f"/task/{task}").content for task in flower.tasks("intake.fetch")}
    found.texts |= {f"log {path.name}": path.read_bytes() for path in deployment.logs.iterdir()}
    found.texts["metrics"] = httpx.get(f"{deployment.access.metrics_url}/metrics", trust_env=False).content
    found.texts["problem"] = _refused_upload(door)
    found.texts["failed case"] = json.dumps(found.cases[-1]).encode()
    return found


def _endpoint(door: Door, receiver: Receiver) -> str:
    endpoint_id: str = door.http.post("/v1/webhook-endpoints", json={"url": receiver.url}).json()["webhook_endpoint_id"]
    return endpoint_id


def _all_in_line(door: Door, accepted: Sequence[Json]) -> bool:
    return all(door.case(case["case_id"])["status"] == "awaiting_inference" for case in accepted)


def _of(tasks: dict[str, Json], cases: Sequence[Json]) -> list[str]:
    wanted = {case["case_id"].removeprefix("case_") for case in cases}
    return [task for task in tasks if task.partition(":")[0] in wanted]


def _refused_upload(door: Door) -> bytes:
    """Requests that are refused although, or because, they hold the patient's name."""
    file = ("instances", ("quetzal-file.dcm", patient_image(7), "application/dicom"))
    told = {"lane": "Quetzal^Canary"}
    refused = door.http.post("/v1/cases", files=[file], data=told, headers={"Idempotency-Key": "canary-refused-1"})
    reused = [door.submit(patient_image(number), key="canary-reused-1") for number in (8, 9)][-1]
    assert (refused.status_code, reused.status_code) == (422, 422)
    return refused.content + reused.content


def test_flower_shows_the_pools_as_workers(flower: Flower) -> None:
    assert flower.workers() == POOLS


def test_flower_shows_each_case_in_each_pool(flower: Flower, kept: Kept) -> None:
    read = [case for case in kept.cases if case["status"] == "completed"]

    assert len(read) == 5
    for name in ("intake.fetch", "inference.infer", "reporting.postprocess"):
        states = {flower.tasks(name)[task]["state"] for task in _of(flower.tasks(name), read)}
        assert (len(_of(flower.tasks(name), read)), states) == (5, {"SUCCESS"})


def test_flower_shows_the_batches_with_size_and_reason(flower: Flower, kept: Kept) -> None:
    batches: dict[str, dict[str, Any]] = {
        case["result"]["batch"]["batch_id"]: case["result"]["batch"] for case in kept.cases if case["status"] == "completed"
    }
    shown = flower.tasks("inference.batch")

    for batch_id, batch in batches.items():
        facts = json.loads(shown[batch_id]["kwargs"])
        assert (facts["n"], facts["reason"]) == (batch["size"], batch["fired_because"])


def test_flower_asks_for_a_password_and_lets_nobody_touch_anything(flower: Flower, deployment: Deployment) -> None:
    assert httpx.get(f"{flower.http.base_url}/api/workers", trust_env=False).status_code == 401
    assert flower.http.post(f"/api/worker/shutdown/{next(iter(flower.http.get('/api/workers').json()))}").status_code >= 400
    assert flower.http.post("/api/task/send-task/intake.ring", json={"args": []}).status_code >= 400
    assert deployment.worker("intake").is_running()


def test_the_broken_image_of_the_patient_ended_with_a_code(kept: Kept) -> None:
    assert kept.cases[-1]["failure"]["code"] == "truncated-pixels"


@pytest.mark.parametrize(
    "place", ["flower", "redis, cases in line", "redis, cases in the queue", "callbacks", "log", "metrics", "problem", "failed case"]
)
def test_no_value_of_a_patient_is_kept_or_shown(kept: Kept, place: str) -> None:
    texts = {name: text.lower() for name, text in kept.texts.items() if name.startswith(place)}

    assert any(texts.values())
    found = [(name, canary) for name, text in texts.items() for canary in CANARIES if canary.lower().encode() in text]
    assert found == []


def test_the_search_looked_where_the_patients_cases_were(kept: Kept) -> None:
    ids = [case["case_id"].removeprefix("case_").encode() for case in kept.cases]
    line, queue = (kept.texts[place].replace(b"-", b"") for place in ("redis, cases in line", "redis, cases in the queue"))

    assert all(case_id in line for case_id in ids[:4])
    assert ids[-1] in queue
