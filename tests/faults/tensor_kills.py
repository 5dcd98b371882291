"""D4: writers and readers of the tensor store are killed with -9; what each of them saw is judged from outside.

A writer says in a file which tensors it wrote, and which it is about to free. A reader takes any of them that nobody has
freed and compares it with a checksum of its own. Between two kills the judge reads what the dead had left, and reclaims as
the sweeper does.
"""

import json
import os
import random
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import uuid4

import numpy as np

from pipeline.deadline import utc_now
from pipeline.errors import IdentityMismatch, TensorMissing
from pipeline.tensors.shared_memory import UNFINISHED_FOR_S, UNFINISHED_SUFFIX, SharedMemoryStore
from schemas.tensor import TensorHandle
from tests.faults.processes import spawn

CAPACITY_BYTES = 4 << 30
LARGEST_BYTES = 1 << 23
HELD = 6
"""Tensors that a writer keeps before it frees its oldest."""
PAUSE_S = 0.02
"""Longest time between a process's first deed and its death."""
LIFETIME = timedelta(minutes=10)
AIMED_SHARE = 0.7
"""So many of the writers die as soon as an unfinished tensor is seen; the others at any moment."""
AIM_LIMIT_S = 1.0
START_LIMIT_S = 60.0
LOOK_EVERY_S = 0.002


@dataclass(slots=True)
class TensorToll:
    """What came of the kills."""

    kills: int = 0
    reads: int = 0
    torn: list[str] = field(default_factory=list)
    """Tensors that came back with other bytes than were written."""
    vanished: list[str] = field(default_factory=list)
    """Tensors that were gone although nobody had freed them and their time was not over."""
    unfinished: set[str] = field(default_factory=set)
    """Slots that writers left when they were killed within a write."""
    left_bytes: int = 0
    """What no reclaiming brought back."""


@dataclass(frozen=True, slots=True)
class Books:
    """What writers and readers say, in files that are only added to."""

    folder: Path

    def say(self, book: str, text: str) -> None:
        """Add a line in one write, which a kill does not divide."""
        file = os.open(self.folder / book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{text}\n".encode())
        finally:
            os.close(file)

    def lines(self, book: str) -> list[str]:
        """All that was said."""
        path = self.folder / book
        return path.read_text().splitlines() if path.exists() else []

    def written(self) -> Iterator[tuple[TensorHandle, int]]:
        """Tensors that nobody has freed or is about to, and their checksums."""
        told, freed = self.lines("written"), set(self.lines("freed"))
        for line in told:
            said = json.loads(line)
            handle = TensorHandle.model_validate(said["handle"])
            if handle.key not in freed:
                yield handle, said["checksum"]


def judge(store: SharedMemoryStore, handle: TensorHandle, checksum: int) -> str | None:
    """`torn`, `vanished`, or None where the tensor is what was written."""
    try:
        values = store.get(handle, case_id=handle.case_id)
    except IdentityMismatch:
        return "torn"
    except TensorMissing:
        return "vanished"
    return None if zlib.crc32(values.data) == checksum else "torn"


def write_for_ever(folder: Path, books: Books, seed: int) -> None:
    """Put tensors and free the oldest, until killed."""
    chance, store, held = np.random.default_rng(seed), SharedMemoryStore(folder, capacity_bytes=CAPACITY_BYTES), list[TensorHandle]()
    noise = chance.integers(0, 256, LARGEST_BYTES, dtype=np.uint8)
    while True:
        first = chance.integers(0, LARGEST_BYTES)
        values = noise[first:]
        handle = store.put(values, case_id=uuid4(), generation=seed, expires_at=utc_now() + LIFETIME)
        books.say("written", json.dumps({"handle": handle.model_dump(mode="json"), "checksum": zlib.crc32(values.data)}))
        held.append(handle)
        if len(held) > HELD:
            oldest = held.pop(0)
            books.say("freed", oldest.key)
            store.free(oldest)


def read_for_ever(folder: Path, books: Books, seed: int) -> None:
    """Read what is there, until killed."""
    chance, store = random.Random(seed), SharedMemoryStore(folder, capacity_bytes=CAPACITY_BYTES)
    while True:
        known = list(books.written())
        for handle, checksum in chance.sample(known, min(8, len(known))):
            verdict = judge(store, handle, checksum)
            # Its writer may have freed it since we looked.
            if verdict == "torn" or (verdict and handle.key not in books.lines("freed")):
                books.say(verdict, handle.key)
            books.say("read", handle.key)


def kill_users(folder: Path, *, kills: int, seed: int = 0, tell: Callable[[int], None] = lambda _: None) -> TensorToll:
    """Kill a writer and a reader in turn, so many times in all; `folder` holds the store and what is written down.

    `tell` hears how many were killed.
    """
    toll, books, chance = TensorToll(), Books(folder / "books"), random.Random(seed)
    books.folder.mkdir(parents=True)
    store = SharedMemoryStore(folder / "tensors", capacity_bytes=CAPACITY_BYTES)
    users: dict[str, BaseProcess] = {}
    try:
        for number in range(kills):
            for role, deed, target in (("writer", "written", write_for_ever), ("reader", "read", read_for_ever)):
                if role not in users:
                    done = len(books.lines(deed))
                    users[role] = spawn(target, folder / "tensors", books, number, environment={}, log=folder / "log")
                    _await_more(books, deed, done)
            time.sleep(chance.random() * PAUSE_S)
            is_writer = number % 2 == 0
            if is_writer and chance.random() < AIMED_SHARE:
                _aim(folder / "tensors")
            _end(users.pop("writer" if is_writer else "reader"))
            toll.kills += 1
            tell(toll.kills)
            if is_writer:
                toll.unfinished |= _unfinished(folder / "tensors")
            store.reclaim(now=utc_now())
            if is_writer:
                _bury(store, books, toll)
    finally:
        for user in users.values():
            _end(user)
    _bury(store, books, toll)
    _take_stock(folder / "tensors", store, books, toll)
    return toll


def _await_more(books: Books, deed: str, done: int) -> None:
    until = time.monotonic() + START_LIMIT_S
    while len(books.lines(deed)) <= done:
        if time.monotonic() > until:
            raise TimeoutError(f"nothing was {deed} for {START_LIMIT_S:.0f} s")
        time.sleep(LOOK_EVERY_S)


def _aim(tensors: Path) -> None:
    """Wait until a tensor is being written."""
    known, until = _unfinished(tensors), time.monotonic() + AIM_LIMIT_S
    while not _unfinished(tensors) - known and time.monotonic() < until:
        pass


def _unfinished(tensors: Path) -> set[str]:
    return {path.name for path in tensors.iterdir() if path.name.endswith(UNFINISHED_SUFFIX)}


def _end(user: BaseProcess) -> None:
    user.kill()
    user.join()


def _bury(store: SharedMemoryStore, books: Books, toll: TensorToll) -> None:
    """No writer lives: what was written and not freed must be whole. Then it is freed in the dead writer's place."""
    for handle, checksum in books.written():
        verdict = judge(store, handle, checksum)
        if verdict:
            books.say(verdict, handle.key)
        toll.reads += 1
        books.say("freed", handle.key)
        store.free(handle)


def _take_stock(tensors: Path, store: SharedMemoryStore, books: Books, toll: TensorToll) -> None:
    toll.reads += len(books.lines("read"))
    toll.torn, toll.vanished = books.lines("torn"), books.lines("vanished")
    # Slots that were never named by a handle: unfinished for too long, or whole and past their time.
    store.reclaim(now=utc_now() + timedelta(seconds=UNFINISHED_FOR_S))
    if _unfinished(tensors):
        toll.left_bytes = store.used_bytes()
        return
    store.reclaim(now=utc_now() + LIFETIME)
    toll.left_bytes = store.used_bytes()
