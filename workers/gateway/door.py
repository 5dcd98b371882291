"""What the routes share."""

from dataclasses import dataclass

from fastapi import Request

from pipeline.persistence.ledger.admission import Accepted, NewCase
from workers.doorbell import Publisher
from workers.gateway.answers import AnswerBell
from workers.gateway.keys import KeyRing
from workers.group_commit import GroupCommit
from workers.wiring import Services


@dataclass(frozen=True, slots=True)
class Door:
    """One gateway process."""

    services: Services
    app: Publisher
    keys: KeyRing
    bell: AnswerBell
    admissions: GroupCommit[NewCase, Accepted]


async def at_the_door(request: Request) -> Door:
    """The door that this request came through. Asynchronous like all our dependencies: the others take a thread each."""
    door: Door = request.app.state.door
    return door
