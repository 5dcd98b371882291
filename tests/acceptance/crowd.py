"""Many small cases in flight while something happens to the deployment, and what must be true of them at the end."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from tests.acceptance.running import Deployment

IN_FLIGHT = 16
RECOVERY_S = 90.0
"""For all to end, on a slow machine: a lease lapses after 6 s, an inference process loads its model in a few."""


def interrupt_mid_run(deployment: Deployment, studies: Sequence[bytes], strike: Callable[[], object], *, case_count: int) -> list[str]:
    """Submit so many cases, strike when a third of them have ended, and wait until all have."""
    with _submitting(deployment, studies, case_count) as submitted:
        deployment.door.ended(submitted[case_count // 3].result(), within_s=RECOVERY_S)
        strike()
    case_ids = [each.result() for each in submitted]
    for case_id in case_ids:
        deployment.door.ended(case_id, within_s=RECOVERY_S)
    return case_ids


@contextmanager
def _submitting(deployment: Deployment, studies: Sequence[bytes], case_count: int) -> Iterator[Sequence[Future[str]]]:
    """Submit from sixteen threads; the body runs meanwhile."""

    def send(number: int) -> str:
        case_id: str = deployment.door.accepted(studies[number % len(studies)])["case_id"]
        return case_id

    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        yield [threads.submit(send, number) for number in range(case_count)]


@contextmanager
def flowing(deployment: Deployment, studies: Sequence[bytes], **fields: str) -> Iterator[list[str]]:
    """Sixteen clients send a case, wait for its end and send the next, for as long as the body runs; the ids grow with the cases."""
    is_enough = Event()
    case_ids: list[str] = []

    def send(number: int) -> None:
        while not is_enough.is_set():
            case_id = deployment.door.accepted(studies[number % len(studies)], fields=fields)["case_id"]
            case_ids.append(case_id)
            deployment.door.ended(case_id, within_s=RECOVERY_S)

    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        clients = [threads.submit(send, number) for number in range(IN_FLIGHT)]
        try:
            yield case_ids
        finally:
            is_enough.set()
        for each in clients:
            each.result()


def assert_each_ended_once(deployment: Deployment, case_ids: Sequence[str]) -> None:
    """All are completed, each with one result and one end."""
    ids, count = [case_id.removeprefix("case_") for case_id in case_ids], len(case_ids)
    assert len(set(ids)) == count
    states = deployment.rows("SELECT state, count(*) FROM cases WHERE id = ANY(%s::uuid[]) GROUP BY 1", ids)
    assert states == [("completed", count)]
    results = deployment.rows(
        "SELECT version, count(*), count(DISTINCT case_id) FROM results WHERE case_id = ANY(%s::uuid[]) GROUP BY 1", ids
    )
    assert results == [(1, count, count)]
    endings = deployment.rows(
        "SELECT entered_state, count(*), count(DISTINCT case_id) FROM case_events"
        " WHERE case_id = ANY(%s::uuid[]) AND entered_state IN ('completed', 'failed', 'cancelled') GROUP BY 1",
        ids,
    )
    assert endings == [("completed", count, count)]
