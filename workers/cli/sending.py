"""Sending several cases at once, and what came of each."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from schemas.api import CaseView
from workers.cli.files import case_name
from workers.client import Client, ProblemError, Wishes, is_answered

AT_ONCE = 8
STEP_S = 2.0
"""Longest single poll: so soon does Ctrl-C end the command."""
AFTER_DEADLINE_S = 30.0
"""How long past its deadline a case is waited for: nobody should wait for ever."""
ANSWERS = frozenset({"findings", "nothing_found", "not_applicable"})


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of one case."""

    name: str
    took_s: float
    case: CaseView | None = None
    refusal: str = ""
    advice: str = ""

    @property
    def has_answer(self) -> bool:
        """Whether a human can read what was found, or that there was nothing to find."""
        return self.case is not None and self.case.result is not None and self.case.result.get("outcome") in ANSWERS

    @property
    def is_lost(self) -> bool:
        """Whether it was refused, or has failed."""
        return self.case is None or self.case.status in {"failed", "cancelled"}


def send_all(
    client: Client, groups: Sequence[tuple[Path, ...]], *, is_waiting: bool, wishes: Wishes, on_done: Callable[[Sent], None]
) -> list[Sent]:
    """Send every group as a case, eight at once, and keep their order; `on_done` is told as they end.

    Raises
    ------
    Unreachable
        Nobody opens: then there is no sense in trying the others.
    """
    stop = Event()
    with _threads(stop) as pool:
        futures = [pool.submit(_send, client, files, is_waiting=is_waiting, wishes=wishes, stop=stop) for files in groups]
        for future in as_completed(futures):
            on_done(future.result())
        return [future.result() for future in futures]


@contextmanager
def _threads(stop: Event) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield pool
    finally:
        # After Ctrl-C, or once it is known that nobody opens, what has not begun is left, and nobody waits on.
        stop.set()
        pool.shutdown(cancel_futures=True)


def _send(client: Client, files: tuple[Path, ...], *, is_waiting: bool, wishes: Wishes, stop: Event) -> Sent:
    began, name = time.monotonic(), case_name(files)
    try:
        case = client.submit(files, wait_s=STEP_S if is_waiting else 0.0, **wishes)
        give_up_at = time.monotonic() + _patience_s(case)
        while is_waiting and not (is_answered(case) or stop.is_set() or time.monotonic() > give_up_at):
            case = client.wait(case.case_id, until_s=STEP_S)
    except ProblemError as problem:
        return Sent(name, time.monotonic() - began, refusal=f"{problem.title}.", advice=f"{problem.title}: {problem.advice}")
    except OSError as error:
        return Sent(name, time.monotonic() - began, refusal=f"The file cannot be read ({error.strerror}).")
    return Sent(name, time.monotonic() - began, case=case)


def _patience_s(case: CaseView) -> float:
    # Both moments are the door's: this machine's clock may tell another time.
    return (case.deadline_at - case.accepted_at).total_seconds() + AFTER_DEADLINE_S
