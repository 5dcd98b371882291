"""Every refusal of the door: a closed list of codes, each with its status, and one shape for all (RFC 9457)."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from pipeline.errors import RejectedInput, SecondreadError, Superseded, Unavailable
from pipeline.observability.log import logger
from schemas.api import Problem, ProblemItem


@dataclass(frozen=True, slots=True)
class Refusal:
    """One entry of the closed list."""

    status: int
    title: str
    advice: str
    retry_after_s: int | None = None


REFUSALS: dict[str, Refusal] = {
    "malformed": Refusal(400, "The request cannot be read", "Correct the request; the errors name the places."),
    "unauthenticated": Refusal(401, "No valid API key was given", "Send `Authorization: Bearer` with a key of your tenant."),
    "forbidden": Refusal(403, "The key lacks the scope for this", "Ask the operator for a key with the scope that the detail names."),
    "not-found": Refusal(404, "There is no such thing for this key", "Check the id; cases of other tenants look the same."),
    "result-not-ready": Refusal(404, "The case has no such result yet", "Wait for the callback, or poll the case.", 2),
    "method-not-allowed": Refusal(405, "This address does not take that method", "See /openapi.json."),
    "case-already-ended": Refusal(409, "The case has ended already", "Read the case; nothing is left to cancel."),
    "case-not-put-off": Refusal(409, "The case is not in the compensation queue", "Read the case: it is being read, or has ended."),
    "case-moved": Refusal(409, "The case changed while the request ran", "Read the case and try again.", 1),
    "too-large": Refusal(413, "The request is larger than this door takes", "Split the submission, or have it fetched from a source."),
    "unsupported-media-type": Refusal(415, "The body is of a type that is not taken", "Send multipart/form-data or application/json."),
    "idempotency-key-reused": Refusal(422, "This Idempotency-Key was used for another request", "Use a new key for a new request."),
    "invalid": Refusal(422, "The request is well-formed but impossible", "Correct it; the errors name the places."),
    "endpoint-forbidden": Refusal(422, "Callbacks may not go to that address", "Use an address that the operator has allowed."),
    "idempotency-key-missing": Refusal(428, "Idempotency-Key is required", "Send a key of 8 to 128 visible characters, new for each case."),
    "internal": Refusal(500, "Something went wrong inside secondread", "Retry with the same key; if it stays, quote the instance."),
    "picture-damaged": Refusal(500, "The stored picture is not the result's", "Rely on the result itself; tell the operator the case id."),
    "ledger-unavailable": Refusal(503, "The ledger is not available", "Retry with the same Idempotency-Key.", 10),
    "source-unavailable": Refusal(503, "The upload store is not available", "Retry with the same Idempotency-Key.", 10),
    "dependency-unavailable": Refusal(503, "A service that secondread needs is away", "Retry with the same Idempotency-Key.", 10),
}
"""Documented in `docs/problems.md`, which is made from this table; a test walks it."""

_FIELD = re.compile(r"[a-z0-9_]{1,64}")
_BY_STATUS = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 415: "unsupported-media-type"}


class Refused(SecondreadError):
    """The door says no, with a code of the list."""

    def __init__(self, code: str, detail: str = "", *, case_id: str | None = None, errors: tuple[ProblemItem, ...] = ()) -> None:
        super().__init__(detail or REFUSALS[code].title)
        self.refusal_code = code
        self.case_id = case_id
        self.errors = errors


def problem_response(code: str, detail: str, *, case_id: str | None = None, errors: tuple[ProblemItem, ...] = ()) -> JSONResponse:
    """Word a refusal."""
    refusal = REFUSALS[code]
    problem = Problem(
        type=f"/problems/{code}",
        title=refusal.title,
        status=refusal.status,
        detail=detail or refusal.title,
        instance=uuid4().urn,
        code=code,
        advice=refusal.advice,
        retryable=refusal.retry_after_s is not None,
        retry_after_s=refusal.retry_after_s,
        case_id=case_id,
        errors=errors,
    )
    headers = {"Cache-Control": "no-store"}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status_code=refusal.status, media_type="application/problem+json", headers=headers)


def install(app: FastAPI) -> None:
    """Make every error of the application a problem of the list."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RejectedInput, _rejected)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_exception_handler(Superseded, _superseded)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)  # noqa: S101 - the table of handlers above says so
    return problem_response(error.refusal_code, str(error), case_id=error.case_id, errors=error.errors)


async def _rejected(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RejectedInput)  # noqa: S101
    return problem_response(error.code if error.code in REFUSALS else "invalid", str(error))


async def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Unavailable)  # noqa: S101
    logger().warning("request_not_served", code=error.code)
    return problem_response(error.code if error.code in REFUSALS else "dependency-unavailable", "")


async def _superseded(_request: Request, _error: Exception) -> JSONResponse:
    return problem_response("case-moved", "")


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    # What was sent is not repeated: it may hold patient data.
    items = tuple(
        ProblemItem(pointer="/" + "/".join(map(_place, each["loc"])), code=each["type"], message=each["msg"]) for each in error.errors()
    )
    is_unreadable = any(each.code == "json_invalid" for each in items)
    return problem_response("malformed" if is_unreadable else "invalid", "", errors=items)


def _place(part: str | int) -> str:
    """A step of a pointer. A field that the client made up may be anything, so only what looks like a field is repeated."""
    return str(part) if _FIELD.fullmatch(str(part)) else "?"


async def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    return problem_response(_BY_STATUS.get(error.status_code, "malformed"), "")


async def _unexpected(_request: Request, error: Exception) -> JSONResponse:
    logger().error("request_crashed", exc_info=error)
    return problem_response("internal", "")
