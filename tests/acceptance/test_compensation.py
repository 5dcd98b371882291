"""The compensation queue in a human's hands: by the API, and by the command."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import pytest

from pipeline.cases.states import CaseState
from pipeline.persistence.ledger.compensation import PutOff, put_off
from pipeline.persistence.ledger.engine import Ledger, open_ledger
from tests.acceptance.running import Deployment, Door, Json, eventually

pytestmark = pytest.mark.services

MakeDoor = Callable[..., Door]
"""(tenant, *scopes)"""
RECOVERY_S = 60.0
LATER_S = 3_600.0
"""Not tried again before: nobody but the test moves it."""


@pytest.fixture
def ledger(deployment: Deployment) -> Iterator[Ledger]:
    ledger = open_ledger(deployment.environment["SECONDREAD_DATABASE_URL"], connections=1)
    yield ledger
    ledger.close()


@contextmanager
def put_off_case(deployment: Deployment, ledger: Ledger, study: bytes) -> Iterator[str]:
    """A case that was put off before intake saw it."""
    with deployment.paused("intake"):
        case_id: str = deployment.door.accepted(study)["case_id"]
        case = UUID(hex=case_id.removeprefix("case_"))
        assert put_off(ledger, PutOff(case, 0, CaseState.ACCEPTED, "deadline", LATER_S)) is False
    yield case_id


def listed(door: Door, case_id: str) -> Json | None:
    cases = door.http.get("/v1/compensation").json()["cases"]
    return next((case for case in cases if case["case_id"] == case_id), None)


def command(deployment: Deployment, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"SECONDREAD_URL": deployment.access.url, "SECONDREAD_API_KEY": deployment.access.api_key, "COLUMNS": "160"}
    return subprocess.run(
        [sys.executable, "-m", "workers.cli.main", "compensation", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_a_case_that_was_put_off_is_listed_and_read_when_somebody_asks(
    deployment: Deployment, ledger: Ledger, door: Door, studies: Sequence[bytes]
) -> None:
    with put_off_case(deployment, ledger, studies[0]) as case_id:
        found = listed(door, case_id)
        assert found is not None
        assert (found["status"], found["reason"], found["attempts"], found["worklist_at"]) == ("deferred", "deadline", 0, None)

        asked = door.http.post(f"/v1/compensation/{case_id}/retry")

    assert asked.status_code == 202
    ended = eventually(lambda: case if (case := door.case(case_id))["ended_at"] else None, within_s=RECOVERY_S)
    assert ended
    assert (ended["status"], ended["lane"], ended["result"]["outcome"]) == ("completed", "compensation", "findings")
    assert listed(door, case_id) is None


def test_a_case_is_closed_by_hand_with_a_code_and_the_name_of_who_did_it(
    deployment: Deployment, ledger: Ledger, door: Door, studies: Sequence[bytes]
) -> None:
    with put_off_case(deployment, ledger, studies[1]) as case_id:
        closed = door.http.post(f"/v1/compensation/{case_id}/close").json()

    assert (closed["status"], closed["failure"]["code"]) == ("failed", "closed-by-hand")
    (worker,) = deployment.rows(
        "SELECT worker FROM case_events WHERE case_id = %s AND entered_state = 'failed'", case_id.removeprefix("case_")
    )
    assert worker[0].startswith("key:")


def test_what_is_not_put_off_or_another_tenants_is_refused(
    deployment: Deployment, ledger: Ledger, door: Door, make_door: MakeDoor, studies: Sequence[bytes]
) -> None:
    stranger = make_door("strangers", "cases:read", "cases:write")
    reader = make_door("strangers", "cases:read")
    done = door.answered(studies[2])["case_id"]
    with put_off_case(deployment, ledger, studies[3]) as case_id:
        for act in ("retry", "close"):
            assert door.http.post(f"/v1/compensation/{done}/{act}").json()["code"] == "case-not-put-off"
            assert stranger.http.post(f"/v1/compensation/{case_id}/{act}").status_code == 404
            assert reader.http.post(f"/v1/compensation/{case_id}/{act}").status_code == 403
        assert listed(stranger, case_id) is None
        assert listed(door, case_id) is not None
        door.http.post(f"/v1/compensation/{case_id}/close")


def test_the_command_lists_and_closes(deployment: Deployment, ledger: Ledger, studies: Sequence[bytes]) -> None:
    with put_off_case(deployment, ledger, studies[4]) as case_id:
        shown = command(deployment, "list")
        closed = command(deployment, "close", case_id)

    assert (shown.returncode, closed.returncode) == (0, 0)
    assert case_id in shown.stdout
    assert "deadline" in shown.stdout
    assert f"{case_id} is failed" in closed.stdout
    assert command(deployment, "retry").returncode == 2
