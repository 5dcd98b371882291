"""The client: submit cases, wait for answers, read them, check callbacks. Needs httpx and pydantic, nothing of the server."""

import base64
import binascii
import hashlib
import hmac
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from httpx_sse import connect_sse
from pydantic import BaseModel, ValidationError

from schemas.api import (
    CaseEventView,
    CaseList,
    CaseView,
    EndpointView,
    LaneName,
    Problem,
    PutOffList,
    PutOffView,
    TimelineView,
)
from schemas.report import Report
from schemas.webhook import CaseStatus

TRIES: Final = 3
TIMEOUT_S: Final = 30.0
LONGEST_POLL_S: Final = 25.0
"""The door waits no longer for one request."""
LONGEST_PAUSE_S: Final = 60.0
"""Who is told to come back later than this is told so at once."""
FIRST_PAUSE_S: Final = 0.25
"""Before the second try where the door named no time; doubles."""
CALLBACK_TOLERANCE_S: Final = 300.0
"""Standard Webhooks 1.0: an older or a younger signature may be a replay."""
ENDED: Final[frozenset[CaseStatus]] = frozenset({"completed", "failed", "cancelled"})

_BUSY = frozenset({429, 503})
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
_LOST = (*_NEVER_SENT, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ReadTimeout, httpx.WriteTimeout)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Instances = Path | bytes | Sequence[Path | bytes]
"""DICOM files of one case: places, or contents."""
Value = TypeVar("Value", bound=BaseModel)


class ClientError(Exception):
    """The root: the door did not do what it was asked."""


class Unreachable(ClientError):
    """Nobody listens there, or the connection broke at every try."""

    def __init__(self, url: str) -> None:
        super().__init__(f"nobody answers at {url}")
        self.url = url


class ProblemError(ClientError):
    """The door refused: the fields of its problem body (RFC 9457)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.title} ({problem.code}): {problem.detail}")
        self.code, self.title, self.detail, self.advice = problem.code, problem.title, problem.detail, problem.advice
        self.status, self.retryable, self.retry_after_s = problem.status, problem.retryable, problem.retry_after_s
        self.case_id, self.errors = problem.case_id, problem.errors


class BadSignature(ClientError):
    """A callback was not signed with our secret, not now, or not for this body."""


class Wishes(TypedDict, total=False):
    """What may be said with a submission."""

    lane: LaneName
    deadline_s: float
    """Seconds until the answer is due; the door's own limit where absent."""
    client_reference: str
    """Yours; comes back with the case and its callbacks. Keep patient data out of it."""
    webhook_endpoint_id: str


class Client:
    """One door and the key that opens it. May be used by several threads; close it, or use it in a `with` block.

    Parameters
    ----------
    url
        The door, as http://host:port.
    api_key
        A key of your tenant.
    timeout_s
        Longest silence of the door, beside what a request asks it to wait.
    pause
        Waits so many seconds between two tries.

    Every method may raise `ProblemError` and `Unreachable`. A door that is busy (429, 503) or does not answer is
    tried three times in all, as it asks for, with the same Idempotency-Key.
    """

    def __init__(self, url: str, api_key: str, *, timeout_s: float = TIMEOUT_S, pause: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._timeout_s, self._pause = timeout_s, pause
        # A proxy that the environment names is for the world outside, never for this machine.
        is_here = urlsplit(url).hostname in _LOOPBACK
        headers = {"Authorization": f"Bearer {api_key}", "User-Agent": "secondread-client"}
        self._http = httpx.Client(base_url=self.url, headers=headers, trust_env=not is_here)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Use it in a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connections."""
        self.close()

    def submit(
        self, instances: Instances, *, idempotency_key: str | None = None, wait_s: float = 0.0, **wishes: Unpack[Wishes]
    ) -> CaseView:
        """Send the DICOM files of one case. A case that returns cannot be lost any more.

        Parameters
        ----------
        instances
            Files of one study. Their names are not sent: they often hold a patient's.
        idempotency_key
            8 to 128 visible characters: the same key never makes a second case. One is made where absent.
        wait_s
            Wait so long for the answer, 25 at most; the case then comes with its `result`.
        wishes
            See `Wishes`.
        """
        one = isinstance(instances, Path | bytes)
        parts: Sequence[Path | bytes] = [instances] if one else instances  # type: ignore[list-item,assignment]
        contents = [part.read_bytes() if isinstance(part, Path) else part for part in parts]
        files = [("instances", (f"{number}.dcm", content, "application/dicom")) for number, content in enumerate(contents, start=1)]
        fields = {name: str(value) for name, value in wishes.items()}
        return self._submit(idempotency_key, wait_s, files=files, data=fields)

    def submit_source(
        self, source: str, paths: Sequence[str], *, idempotency_key: str | None = None, wait_s: float = 0.0, **wishes: Unpack[Wishes]
    ) -> CaseView:
        """Have one case fetched from a source that the operator configured; otherwise as `submit`."""
        return self._submit(idempotency_key, wait_s, json={"source": source, "paths": list(paths), **wishes})

    def case(self, case_id: str, *, wait_s: float = 0.0) -> CaseView:
        """Read a case; with `wait_s` (25 at most) the door replies as soon as the case has an answer."""
        return _parsed(CaseView, self._send("GET", f"/v1/cases/{case_id}", wait_s=wait_s))

    def wait(self, case_id: str, *, until_s: float) -> CaseView:
        """Ask until the case has an answer (`is_answered`), or `until_s` seconds are over."""
        end = time.monotonic() + until_s
        while True:
            left_s = end - time.monotonic()
            case = self.case(case_id, wait_s=min(max(left_s, 0.0), LONGEST_POLL_S))
            if is_answered(case) or time.monotonic() >= end:
                return case

    def result(self, case_id: str, *, version: int | None = None) -> Report:
        """Read the newest result, or that version."""
        return _parsed(Report, self._send("GET", f"/v1/cases/{case_id}/result", params=_given(version=version)))

    def overlay(self, case_id: str, *, image: int = 1, version: int | None = None) -> bytes:
        """Read the PNG of one image (the report counts them from 1) with the findings' outlines."""
        return self._send("GET", f"/v1/cases/{case_id}/overlay.png", params=_given(image=image, version=version)).content

    def probability(self, case_id: str, *, image: int = 1, version: int | None = None) -> bytes:
        """Read the PNG of one image's probability map, on the image's own grid: grey value / 255."""
        return self._send("GET", f"/v1/cases/{case_id}/probability.png", params=_given(image=image, version=version)).content

    def timeline(self, case_id: str) -> TimelineView:
        """Read where a case's time went."""
        return _parsed(TimelineView, self._send("GET", f"/v1/cases/{case_id}/timeline"))

    def events(self, case_id: str, *, after_version: int = 0) -> Iterator[CaseEventView]:
        """Watch a case: each state change as it happens, until the last. A broken stream is resumed where it broke."""
        seen, failures = after_version, 0
        while failures < TRIES:
            try:
                for event in self._stream(case_id, seen):
                    seen, failures = event.version, 0
                    yield event
                    if event.status in ENDED:
                        return
            except _LOST:
                pass
            # Also reached where the door ended the stream before the case ended: it restarts, for instance.
            failures += 1
            self._pause(FIRST_PAUSE_S * 2**failures)
        raise Unreachable(self.url)

    def cases(self, *, status: CaseStatus | None = None, lane: LaneName | None = None, since: datetime | None = None) -> Iterator[CaseView]:
        """List the tenant's cases, newest first; further pages are asked for as they are needed."""
        asked = _given(status=status, lane=lane, since=since.isoformat() if since else None, limit=100)
        while True:
            page = _parsed(CaseList, self._send("GET", "/v1/cases", params=asked))
            yield from page.cases
            if page.next_cursor is None:
                return
            asked["cursor"] = page.next_cursor

    def cancel(self, case_id: str) -> CaseView:
        """End a case that needs no answer any more. Cancelling twice is fine."""
        try:
            return _parsed(CaseView, self._send("POST", f"/v1/cases/{case_id}/cancel"))
        except ProblemError as problem:
            if problem.code != "case-already-ended":
                raise
            case = self.case(case_id)
            if case.status != "cancelled":
                raise
            return case

    def put_off_cases(self) -> tuple[PutOffView, ...]:
        """List the cases of the compensation queue: those for a human first, then the oldest."""
        return _parsed(PutOffList, self._send("GET", "/v1/compensation")).cases

    def retry_put_off(self, case_id: str) -> CaseView:
        """Give a put-off case all its tries again."""
        return _parsed(CaseView, self._send("POST", f"/v1/compensation/{case_id}/retry"))

    def close_put_off(self, case_id: str) -> CaseView:
        """End a put-off case without a reading by the AI."""
        return _parsed(CaseView, self._send("POST", f"/v1/compensation/{case_id}/close"))

    def add_endpoint(self, url: str) -> EndpointView:
        """Store an address for callbacks. Keep the `secret`: it is shown this once, and `verify_callback` needs it."""
        # Not sent again unless it was never sent: a second time would make a second endpoint.
        return _parsed(EndpointView, self._send("POST", "/v1/webhook-endpoints", lost=_NEVER_SENT, json={"url": url}))

    def remove_endpoint(self, endpoint_id: str) -> None:
        """Have nothing told to an endpoint any more."""
        self._send("DELETE", f"/v1/webhook-endpoints/{endpoint_id}")

    def _submit(self, idempotency_key: str | None, wait_s: float, **body: Any) -> CaseView:
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex}
        return _parsed(CaseView, self._send("POST", "/v1/cases", wait_s=wait_s, headers=headers, **body))

    def _send(
        self, method: str, path: str, *, wait_s: float = 0.0, lost: tuple[type[httpx.TransportError], ...] = _LOST, **request: Any
    ) -> httpx.Response:
        wait_s = min(wait_s, LONGEST_POLL_S)
        headers = {**request.pop("headers", {}), **({"Prefer": f"wait={ceil(wait_s)}"} if wait_s > 0 else {})}
        trouble: ClientError = Unreachable(self.url)
        for failures in range(TRIES):
            after_s = FIRST_PAUSE_S * 2**failures
            try:
                response = self._http.request(method, path, headers=headers, timeout=self._timeout_s + wait_s, **request)
            except lost as error:
                trouble.__cause__ = error
            except httpx.TransportError as error:
                raise Unreachable(self.url) from error
            else:
                if response.is_success:
                    return response
                trouble = refusal = _refusal(response)
                after_s = refusal.retry_after_s or after_s
                if response.status_code not in _BUSY or after_s > LONGEST_PAUSE_S:
                    break
            if failures + 1 < TRIES:
                # Clients that were refused together must not come back together.
                self._pause(after_s * random.uniform(1.0, 1.5))  # noqa: S311 - not a secret
        raise trouble

    def _stream(self, case_id: str, seen: int) -> Iterator[CaseEventView]:
        headers = {"Last-Event-ID": str(seen)}
        with connect_sse(self._http, "GET", f"/v1/cases/{case_id}/events", headers=headers, timeout=self._timeout_s) as source:
            if not source.response.is_success:
                source.response.read()
                raise _refusal(source.response)
            for event in source.iter_sse():
                if event.event == "case.moved":
                    yield CaseEventView.model_validate_json(event.data, extra="ignore")


def is_answered(case: CaseView) -> bool:
    """Whether there is a result, preliminary ones included, or will never be one."""
    return case.result_version > 0 or case.status in ENDED


def verify_callback(secret: str, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None) -> str:
    """Check that a callback comes from the door that gave the secret, and is fresh.

    Parameters
    ----------
    secret
        Of the endpoint, with its `whsec_`.
    headers
        Of the request, in any case of letters.
    body
        Exactly the bytes that came.
    now
        The clock; the machine's where None.

    Returns
    -------
    The message's id. A repeat has the same: drop what you have seen.

    Raises
    ------
    BadSignature
        A header is missing or malformed, the time is more than five minutes off, or no signature fits.

    References
    ----------
    Standard Webhooks 1.0, "Verifying webhook authenticity".
    """
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, given = (lower[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        sent_at = float(int(timestamp))
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (KeyError, ValueError, binascii.Error) as error:
        raise BadSignature("a header is missing or malformed, or the secret is none") from error
    if abs((now or datetime.now(UTC)).timestamp() - sent_at) > CALLBACK_TOLERANCE_S:
        raise BadSignature("the signature's time is more than five minutes off")
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    expected = f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}".encode()
    # Several while a secret is rotated; all are compared, and each in constant time.
    matches = [hmac.compare_digest(expected, each.encode()) for each in given.split()]
    if not any(matches):
        raise BadSignature("no signature fits this body")
    return message_id


def _parsed(kind: type[Value], response: httpx.Response) -> Value:
    # A newer door may say more than this client knows.
    return kind.model_validate_json(response.content, extra="ignore")


def _refusal(response: httpx.Response) -> ProblemError:
    try:
        problem = Problem.model_validate_json(response.content, extra="ignore")
    except ValidationError:  # a proxy on the way speaks for itself
        problem = Problem(
            type="about:blank",
            title="The answer was not secondread's",
            status=response.status_code,
            detail=f"HTTP {response.status_code} without a problem body",
            instance="",
            code="unexpected-answer",
            advice="Check the address, and what stands between you and the door.",
            retryable=response.status_code in _BUSY,
        )
    header = response.headers.get("Retry-After", "")
    if header.isdecimal():
        problem = problem.model_copy(update={"retry_after_s": int(header)})
    return ProblemError(problem)


def _given(**parameters: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in parameters.items() if value is not None}
