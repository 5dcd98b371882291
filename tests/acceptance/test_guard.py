"""Every case has an explicit answer by its deadline, whoever is dead; and what was read late follows as a new version."""

import json
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.acceptance.receiver import running_receiver
from tests.acceptance.running import Deployment, Json, eventually, frozen, running_deployment
from tests.patience import PATIENCE

pytestmark = pytest.mark.services

DEADLINE_S = 12.0
PRELIMINARY_AFTER_S = 3.0
RESERVE_S = 2.0
LATE_S = 0.5 * PATIENCE
"""How late an answer by the clock may come."""
RECOVERY_S = 40.0


@pytest.fixture(scope="module")
def hurried() -> Iterator[Deployment]:
    """A deployment with a short deadline, so that the clock is soon over."""
    with running_deployment(SECONDREAD_DEADLINE_S=str(DEADLINE_S), SECONDREAD_PRELIMINARY_AFTER_S=str(PRELIMINARY_AFTER_S)) as deployment:
        yield deployment


def _final(deployment: Deployment, case_id: str) -> Json | None:
    case = deployment.door.case(case_id)
    return case if case["ended_at"] else None


def final(deployment: Deployment, case_id: str) -> Json:
    """The case once it has ended."""
    case = eventually(lambda: _final(deployment, case_id), within_s=RECOVERY_S)
    assert case, deployment.door.case(case_id)
    return case


def answered(deployment: Deployment, study: bytes, **fields: str) -> tuple[Json, float]:
    """A case with its first answer, and the seconds that it took."""
    begun = time.monotonic()
    response = deployment.door.submit(study, wait_s=25, fields=fields)
    assert response.status_code == 200, response.text
    case: Json = response.json()
    return case, time.monotonic() - begun


def test_who_waits_too_long_for_the_model_is_told_so_and_read_later(hurried: Deployment, studies: Sequence[bytes]) -> None:
    with running_receiver() as receiver:
        endpoint = hurried.door.http.post("/v1/webhook-endpoints", json={"url": receiver.url}).json()["webhook_endpoint_id"]
        with hurried.paused("inference"):
            case, took_s = answered(hurried, studies[0], webhook_endpoint_id=endpoint)
            receiver.wait_for(1)
            assert PRELIMINARY_AFTER_S <= took_s <= PRELIMINARY_AFTER_S + LATE_S + 1.0
        assert (case["status"], case["is_preliminary"], case["result_version"]) == ("awaiting_inference", True, 1)
        assert (case["result"]["kind"], case["result"]["outcome"]) == ("preliminary", "not_yet_read")
        assert case["result"]["preliminary_reason"] == "inference-wait"
        ended = final(hurried, case["case_id"])
        receiver.wait_for(2)

    assert (ended["status"], ended["result_version"], ended["is_preliminary"]) == ("completed", 2, False)
    assert (ended["result"]["kind"], ended["result"]["outcome"]) == ("final", "findings")
    first = hurried.door.http.get(f"/v1/cases/{case['case_id']}/result", params={"version": 1}).json()
    assert first == case["result"]
    assert [json.loads(delivery.body)["type"] for delivery in receiver.got] == ["case.preliminary", "case.completed"]


def test_who_cannot_be_read_in_time_is_put_off_told_so_and_read_when_the_model_is_back(
    hurried: Deployment, studies: Sequence[bytes]
) -> None:
    with hurried.paused("inference"):
        accepted = hurried.door.accepted(studies[1])
        put_off = eventually(lambda: _put_off(hurried, accepted["case_id"]), within_s=DEADLINE_S)
        assert put_off
        assert put_off["is_preliminary"]
        # It may be on its way again already: nobody else waits.
        events = hurried.door.timeline(accepted["case_id"])["events"]
        (moved,) = [event for event in events if event["status"] == "deferred"]
        assert (moved["previous"], moved["code"]) == ("awaiting_inference", "deadline")
        assert moved["at"] <= put_off["deadline_at"]
    ended = final(hurried, accepted["case_id"])

    assert (ended["status"], ended["result"]["kind"], ended["lane"]) == ("completed", "final", "compensation")


def _put_off(deployment: Deployment, case_id: str) -> Json | None:
    case = deployment.door.case(case_id)
    return case if case["lane"] == "compensation" else None


def test_the_answer_comes_by_the_deadline_although_redis_answers_nobody(hurried: Deployment, studies: Sequence[bytes]) -> None:
    with frozen(hurried.server("valkey")):
        case, took_s = answered(hurried, studies[2])
        assert took_s <= DEADLINE_S - RESERVE_S + LATE_S + 0.5
        assert case["result"]["kind"] == "preliminary"

    assert final(hurried, case["case_id"])["result"]["kind"] == "final"


def test_the_answer_comes_by_the_deadline_although_every_worker_is_gone(hurried: Deployment, studies: Sequence[bytes]) -> None:
    with hurried.paused("intake"), hurried.paused("inference"), hurried.paused("reporting"):
        case, took_s = answered(hurried, studies[3])
        assert DEADLINE_S - RESERVE_S - LATE_S <= took_s <= DEADLINE_S - RESERVE_S + LATE_S + 0.5
        assert (case["lane"], case["result"]["preliminary_reason"]) == ("compensation", "deadline")

    assert final(hurried, case["case_id"])["result"]["kind"] == "final"
