"""Servers that hang, vanish behind open connections, or drip: every case has one answer, and work goes on by itself."""

import json
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.acceptance.running import Deployment, Json, eventually, running_deployment
from tests.faults.ftp import FtpServer, running_ftp
from tests.faults.proxy import Fault, FaultProxy, proxy_for
from tests.faults.wires import through
from tests.patience import PATIENCE
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.valkey import EmbeddedValkey

pytestmark = pytest.mark.services

DEADLINE_S = 20.0
PRELIMINARY_AFTER_S = 8.0
RESERVE_S = 2.0
LATE_S = 3.0 * PATIENCE
"""For a slow machine; `python -m tests.faults` measures with a narrow bar."""
RECOVERY_S = 60.0
DEAF_S = 9.0
FROZEN_S = 5.0
PAUSE_S = 0.5


class Wired:
    """A deployment that reaches its servers, which are ours, through proxies."""

    def __init__(self, deployment: Deployment, valkey: EmbeddedValkey, proxies: dict[str, FaultProxy], archive: FtpServer) -> None:
        self.deployment, self.valkey, self.proxies, self.archive = deployment, valkey, proxies, archive

    def final(self, case_id: str, *, within_s: float = RECOVERY_S) -> Json:
        """The case with its final result."""
        case = eventually(lambda: self._ended(case_id), within_s=within_s) or self.deployment.door.case(case_id)
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
                "SECONDREAD_REDIS_URL": through(valkey.url, to_valkey),
                "SECONDREAD_DATABASE_URL": through(postgres.url, to_postgres),
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


def deafen(proxy: FaultProxy) -> None:
    """What is open hears and says nothing any more; what is opened now is well."""
    proxy.behave(Fault.SWALLOW)
    proxy.behave()


def submit_for(wired: Wired, study: bytes, seconds: float) -> list[Json]:
    """Submit one case after the other, and say of each how it was accepted or refused, and how long that took."""
    until = time.monotonic() + seconds
    answers: list[Json] = []
    while not answers or time.monotonic() < until:
        begun = time.monotonic()
        response = wired.deployment.door.submit(study)
        answers.append(response.json() | {"http_status": response.status_code, "took_s": time.monotonic() - begun})
        threading.Event().wait(PAUSE_S)
    return answers


@pytest.mark.parametrize("server", ["valkey", "postgres"])
def test_connections_that_go_deaf_are_noticed_and_every_case_is_read_over_new_ones(
    wired: Wired, studies: Sequence[bytes], server: str
) -> None:
    wired.deployment.door.answered(studies[0])
    deafen(wired.proxies[server])

    answers = submit_for(wired, studies[1], DEAF_S)

    assert {each["http_status"] for each in answers} <= {202, 503}
    accepted = [each["case_id"] for each in answers if each["http_status"] == 202]
    assert answers[-1]["http_status"] == 202
    for case_id in accepted:
        wired.final(case_id)
    wired.assert_once(accepted)


def test_while_redis_is_frozen_cases_are_accepted_at_once_and_when_it_wakes_they_are_read(wired: Wired, studies: Sequence[bytes]) -> None:
    with frozen(psutil.Process(wired.valkey.pid)):
        answers = submit_for(wired, studies[2], FROZEN_S)

    # PostgreSQL alone suffices to accept.
    assert {each["http_status"] for each in answers} == {202}
    assert max(each["took_s"] for each in answers) < LATE_S
    accepted = [each["case_id"] for each in answers]
    for case_id in accepted:
        wired.final(case_id)
    wired.assert_once(accepted)


def test_a_source_that_drips_is_given_up_in_time_and_delays_nobody_else(wired: Wired, studies: Sequence[bytes]) -> None:
    door = wired.deployment.door
    wired.archive.drip_every_s = 1.0
    slow = [door.from_source("slow", f"us-{number}.dcm") for number in range(4)]
    accepted_at = time.monotonic()

    # Everybody else's cases are read meanwhile.
    others = [door.accepted(studies[number])["case_id"] for number in range(4, 8)]
    for case_id in others:
        assert door.ended(case_id, within_s=RECOVERY_S)["result"]["kind"] == "final"
    first = door.ended(slow[0], within_s=DEADLINE_S)
    assert first["is_preliminary"]
    assert time.monotonic() - accepted_at < DEADLINE_S - RESERVE_S + LATE_S
    for case_id in slow:
        assert door.ended(case_id, within_s=DEADLINE_S)["is_preliminary"]
    codes = {event["code"] for case_id in slow for event in door.timeline(case_id)["events"]}
    assert "source-timeout" in codes

    wired.archive.drip_every_s = None
    for case_id in slow:
        door.http.post(f"/v1/compensation/{case_id}/retry")
        wired.final(case_id)
    wired.assert_once([*slow, *others])
