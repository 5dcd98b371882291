"""The clocks of all workers jump by five minutes while they run, and nothing expires early or late: PostgreSQL's clock decides."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.jumping_up import JUMPS_DIR, set_clock
from tests.acceptance.receiver import running_receiver
from tests.acceptance.running import Deployment, eventually, running_deployment
from tests.patience import PATIENCE

pytestmark = [pytest.mark.services, pytest.mark.faketime]

JUMP_S = 300.0
ROLES = ("gateway", "intake", "inference", "reporting", "delivery", "sweeper", "guard")
DEADLINE_S, PRELIMINARY_AFTER_S, RESERVE_S = 10.0, 3.0, 2.0
EXACT_S = 1.0 * PATIENCE
"""How far from its moment anything may expire."""
SECOND_ATTEMPT_S = (4.0, 6.0)
"""Five seconds and a fifth either way."""
CASE = """
SELECT EXTRACT(EPOCH FROM accepted_at)::float8, EXTRACT(EPOCH FROM deadline_at - accepted_at)::float8, state, is_preliminary
FROM cases WHERE id = %s
"""
FIRST_ANSWER = """
SELECT r.kind, EXTRACT(EPOCH FROM r.created_at - c.accepted_at)::float8 FROM results r JOIN cases c ON c.id = r.case_id
WHERE r.case_id = %s AND r.version = 1
"""
PUT_OFF = """
SELECT EXTRACT(EPOCH FROM e.at - c.accepted_at)::float8 FROM case_events e JOIN cases c ON c.id = e.case_id
WHERE e.case_id = %s AND e.entered_state = 'deferred'
"""
NEXT_ATTEMPT = """
SELECT EXTRACT(EPOCH FROM d.due_at - a.at)::float8 FROM deliveries d JOIN delivery_attempts a ON a.delivery_id = d.id
WHERE d.case_id = %s AND d.attempt = 1 AND d.lease_until IS NULL
"""
LAPSED = "SELECT count(*) FROM case_events WHERE code = 'lease-expired'"


@pytest.fixture(scope="module")
def jumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the clocks."""
    return tmp_path_factory.mktemp("clocks")


@pytest.fixture(scope="module")
def jumping(jumps: Path) -> Iterator[Deployment]:
    """A deployment with a short deadline, whose workers started with the right time."""
    hurried = {"SECONDREAD_DEADLINE_S": str(DEADLINE_S), "SECONDREAD_PRELIMINARY_AFTER_S": str(PRELIMINARY_AFTER_S)}
    with running_deployment(module="tests.acceptance.jumping_up", **{JUMPS_DIR: str(jumps)}, **hurried) as deployment:
        yield deployment


@pytest.fixture(params=[JUMP_S, -JUMP_S], ids=["ahead", "behind"])
def jumped(request: pytest.FixtureRequest, jumping: Deployment, jumps: Path) -> Deployment:
    """The deployment after all clocks have jumped, as a log line of each pool that works shows."""
    off_s: float = request.param
    for role in ROLES:
        set_clock(jumps, role, off_s)
    assert eventually(lambda: abs(_skew_of(jumping) - off_s) < EXACT_S, within_s=10.0)
    return jumping


def _skew_of(deployment: Deployment) -> float:
    """By how much the gateway's own clock is off, as its answers' Date header tells."""
    date = deployment.door.http.get("/v1/event-types").headers["date"]
    told = datetime.strptime(date, "%a, %d %b %Y %H:%M:%S %Z").replace(tzinfo=UTC)
    return (told - datetime.now(UTC)).total_seconds()


def id_of(case: dict[str, Any]) -> str:
    return str(case["case_id"]).removeprefix("case_")


def test_a_case_is_due_and_answered_as_if_nothing_was(jumped: Deployment, studies: Sequence[bytes]) -> None:
    case = jumped.door.answered(studies[0])

    ((accepted_at, budget_s, state, is_preliminary),) = jumped.rows(CASE, id_of(case))
    assert abs(accepted_at - datetime.now(UTC).timestamp()) < DEADLINE_S
    assert budget_s == pytest.approx(DEADLINE_S)
    assert (state, is_preliminary) == ("completed", False)
    assert jumped.rows(LAPSED) == [(0,)]


def test_an_answer_by_the_clock_is_neither_early_nor_late(jumped: Deployment, studies: Sequence[bytes]) -> None:
    with jumped.paused("inference"):
        case = jumped.door.accepted(studies[1])
        put_off = eventually(lambda: jumped.rows(PUT_OFF, id_of(case)), within_s=2 * DEADLINE_S)

    ((kind, answered_s),) = jumped.rows(FIRST_ANSWER, id_of(case))
    assert kind == "preliminary"
    # It waits for the model from the end of its preparation on, which is soon after its acceptance.
    assert PRELIMINARY_AFTER_S <= answered_s < DEADLINE_S - RESERVE_S + EXACT_S
    assert put_off[0][0] == pytest.approx(DEADLINE_S - RESERVE_S, abs=EXACT_S)
    assert eventually(lambda: jumped.door.case(case["case_id"])["status"] == "completed", within_s=40.0)


def test_a_callback_is_tried_again_when_its_schedule_says(jumped: Deployment, studies: Sequence[bytes]) -> None:
    with running_receiver(500) as receiver:
        endpoint = jumped.door.http.post("/v1/webhook-endpoints", json={"url": receiver.url}).json()["webhook_endpoint_id"]
        case = jumped.door.answered(studies[2], fields={"webhook_endpoint_id": endpoint})
        receiver.wait_for(1)
        ((due_in_s,),) = eventually(lambda: jumped.rows(NEXT_ATTEMPT, id_of(case)), within_s=5.0)
        receiver.wait_for(2)

    assert SECOND_ATTEMPT_S[0] <= due_in_s <= SECOND_ATTEMPT_S[1]


def test_a_worker_that_starts_with_a_wrong_clock_refuses_to_work(jumping: Deployment, jumps: Path) -> None:
    set_clock(jumps, "reporting", JUMP_S)
    log = jumping.logs / "reporting.log"
    # Not killed: the library tidies /dev/shm as it ends.
    jumping.worker("reporting").terminate()
    try:
        assert eventually(lambda: "ClockApart" in log.read_text(), within_s=60.0)
    finally:
        set_clock(jumps, "reporting", 0.0)

    assert jumping.worker("reporting").is_running()
