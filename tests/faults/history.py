"""What the submitting client saw: one JSON line a case, with start, end and outcome."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

Outcome = Literal["ok", "fail", "unknown"]
"""Promised; refused, so nothing may stand; cut off, so either may be true."""


@dataclass(frozen=True, slots=True)
class Submit:
    """One case as its client asked for it."""

    case_id: UUID
    key: str
    """Stands for the image: the stub stages read it instead of pixels."""
    began_at: float
    ended_at: float
    outcome: Outcome


def digest_of(text: str) -> str:
    """SHA-256 of a text: the digest of a stand-in image, and the stub model's answer to a digest."""
    return hashlib.sha256(text.encode()).hexdigest()


def answer_for(key: str) -> str:
    """The only right answer of the stub stages for an image: a digest of what the model saw, which is the image's digest."""
    return digest_of(digest_of(key))


def lines(submits: Iterable[Submit]) -> str:
    """Write submits as lines."""
    return "".join(json.dumps(_as_json(each)) + "\n" for each in submits)


def _as_json(each: Submit) -> dict[str, object]:
    return {"case": each.case_id.hex, "key": each.key, "start": each.began_at, "end": each.ended_at, "outcome": each.outcome}


def read_history(path: Path) -> list[Submit]:
    """Read all lines of a history."""
    found = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    return [Submit(UUID(hex=each["case"]), each["key"], each["start"], each["end"], each["outcome"]) for each in found]
