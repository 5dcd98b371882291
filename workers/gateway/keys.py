"""Who is asking: API keys with scopes, looked up by their hash and remembered for a moment."""

import hashlib
import secrets
import time
from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from pipeline.persistence.ledger.admission import ApiKey, find_api_key
from pipeline.persistence.ledger.engine import Ledger
from workers.gateway.problems import Refused

Scope = Literal["cases:write", "cases:read", "webhooks:write"]
SCOPES: tuple[Scope, ...] = ("cases:write", "cases:read", "webhooks:write")
REMEMBERED_S = 10.0
"""How long a revoked key may still be taken."""
KEY_PREFIX = "srk_"

_bearer = HTTPBearer(auto_error=False, description="An API key of your tenant.")


def new_key_text() -> str:
    """A fresh API key: 256 random bits, shown once."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_key(text: str) -> bytes:
    """How a key is stored. Plain SHA-256 suffices: a key is random, not a password."""
    return hashlib.sha256(text.encode()).digest()


class KeyRing:
    """Finds keys; asks the ledger at most once in `REMEMBERED_S` for each."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[bytes, tuple[float, ApiKey]] = {}

    async def find(self, text: str) -> ApiKey | None:
        """The key of this text, or None. Unknown keys are not remembered, so that guesses fill no memory."""
        digest, now = hash_key(text), time.monotonic()
        if (known := self._known.get(digest)) and known[0] > now:
            return known[1]
        self._known.pop(digest, None)
        if key := await run_in_threadpool(find_api_key, self._ledger, digest):
            self._known[digest] = (now + REMEMBERED_S, key)
        return key


async def asking(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> ApiKey:
    """The caller's key, or 401."""
    ring: KeyRing = request.app.state.door.keys
    key = await ring.find(credentials.credentials) if credentials else None
    if key is None:
        raise Refused("unauthenticated")
    return key


class Needs:
    """A dependency: the caller's key with one scope, or 403."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, key: Annotated[ApiKey, Depends(asking)]) -> ApiKey:
        """Check the scope."""
        if self._scope not in key.scopes:
            raise Refused("forbidden", f"the key lacks the scope {self._scope}")
        return key


Reader = Annotated[ApiKey, Depends(Needs("cases:read"))]
Writer = Annotated[ApiKey, Depends(Needs("cases:write"))]
WebhookOwner = Annotated[ApiKey, Depends(Needs("webhooks:write"))]
