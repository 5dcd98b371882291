"""Signatures of Standard Webhooks 1.0, symmetric scheme `v1`."""

import base64
import hashlib
import hmac
import secrets as entropy
from collections.abc import Sequence
from datetime import datetime
from typing import Final

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  the prefix is public
SECRET_BYTES: Final = 32


def new_secret() -> str:
    """Make an endpoint's secret, written as its receiver will store it."""
    return SECRET_PREFIX + base64.b64encode(entropy.token_bytes(SECRET_BYTES)).decode()


def sign(secrets: Sequence[str], *, message_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Make the three headers of one attempt.

    Parameters
    ----------
    secrets
        All that are valid now: while a secret rotates, the receiver may hold either.
    message_id
        The same at every attempt of one message, so that the receiver can drop repeats.
    at
        The moment of this attempt; receivers refuse what is older than five minutes.

    Raises
    ------
    ValueError
        There is no secret, one is malformed, or the id contains the dot that separates what is signed.

    References
    ----------
    Standard Webhooks 1.0, "Webhook metadata" and "Signature scheme".
    """
    if not secrets or not message_id or "." in message_id:
        raise ValueError("signing needs a secret, and a message id without a dot")
    timestamp = str(int(at.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    signatures = (hmac.digest(_key(secret), signed, hashlib.sha256) for secret in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(signature).decode()}" for signature in signatures),
    }


def _key(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        # The message must not repeat what is, after all, a secret.
        raise ValueError("a webhook secret starts with whsec_")
    return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
