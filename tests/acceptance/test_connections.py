"""Servers that hang, vanish behind open connections, or drip: every case has one answer, and work goes on by itself."""

import json
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest

from tests.acceptance.running import Deployment, Json, eventually, running_deployment
from tests.faults.ftp import FtpServer, running_ftp
from tests.faults.proxy import Fault, FaultProxy, proxy_for
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.valkey import EmbeddedValkey

pytestmark = pytest.mark.services

DEADLINE_S = 20.0
PRELIMINARY_AFTER_S = 8.0
RESERVE_S = 2.0
LATE_S = 3.0
"""For a slow machine; `python -m tests.faults` measures with a narrow bar."""
RECOVERY_S = 60.0


class Wired:
    """A deployment that reaches its servers, which are ours, through proxies."""

    def __init__(self, deployment: Deployment, valkey: EmbeddedValkey, proxies: dict[str, FaultProxy], archive: FtpServer) -> None:
        self.deployment, self.valkey, self.proxies, self.archive = deployment, valkey, proxies, archive

    def final(self, case_id: str, *, within_s: float = RECOVERY_S) -> Json:
        """The case with its final result."""
        case: Json = eventually(lambda: self._ended(case_id), within_s=within_s) or self.deployment.door.case(case_id)
        assert case["status"] == "completed", case
        return case

    def _ended(self, case_id: str) -> Json | None:
        case = self.deployment.door.case(case_id)
        return case if case["ended_at"] else None

    def assert_once(self, case_ids: Sequence[str]) -> None:
        """Each ended once, with one final result."""
        ids = [case_id.removeprefix("case_") for case_id in case_ids]
        finals = self.deployment.rows(
            "SELECT count(*), count(DISTINCT case_id) FROM results WHERE kind = 'final' AND case_id = ANY(%s::uuid[])", ids
        )
        assert finals == [(len(ids), len(ids))]


def _through(url: str, proxy: FaultProxy) -> str:
    parts = urlsplit(url)
    credentials = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}"))


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.fixture(scope="module")
def wired(studies: Sequence[bytes]) -> Iterator[Wired]:
    """Valkey and PostgreSQL of our own, a proxy before each, an archive that may drip."""
    with tempfile.TemporaryDirectory(prefix="secondread-connections-") as name:
        folder = Path(name)
        # Where we are root the servers are not: they must reach the folder.
        folder.chmod(0o711)
        with (
            EmbeddedValkey(folder / "valkey") as valkey,
            EmbeddedPostgres(folder / "postgres") as postgres,
            proxy_for(_port(valkey.url)) as to_valkey,
            proxy_for(_port(postgres.url)) as to_postgres,
            running_ftp() as archive,
        ):
            archive.objects = {f"/us-{number}.dcm": study for number, study in enumerate(studies)}
            settings = {
                "SECONDREAD_REDIS_URL": _through(valkey.url, to_valkey),
                "SECONDREAD_DATABASE_URL": _through(postgres.url, to_postgres),
                "SECONDREAD_SOURCES": json.dumps({"slow": archive.url}),
                "SECONDREAD_DEADLINE_S": str(DEADLINE_S),
                "SECONDREAD_PRELIMINARY_AFTER_S": str(PRELIMINARY_AFTER_S),
            }
            with running_deployment(**settings) as deployment:
                yield Wired(deployment, valkey, {"valkey": to_valkey, "postgres": to_postgres}, archive)


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("server", ["valkey", "postgres"])
def test_connections_that_went_deaf_are_noticed_and_work_goes_on_over_new_ones(
    wired: Wired, studies: Sequence[bytes], server: str
) -> None:
    wired.deployment.door.answered(studies[0])
    proxy = wired.proxies[server]
    proxy.behave(Fault.SWALLOW)
    proxy.behave()
    deaf_at = time.monotonic()
    case_ids = []
    while time.monotonic() - deaf_at < RECOVERY_S:
        begun = time.monotonic()
        response = wired.deployment.door.submit(studies[1], wait_s=2)
        took = time.monotonic() - begun
        print(f"{begun - deaf_at:6.2f} {response.status_code} {took:.2f}", response.json().get("status"), response.json().get("code"))
        if response.status_code in (200, 202):
            case_ids.append(response.json()["case_id"])
    for case_id in case_ids:
        wired.final(case_id)
    wired.assert_once(case_ids)
