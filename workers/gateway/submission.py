"""Reading a submission: multipart with DICOM instances, or JSON that names a configured source."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from pipeline.flow import Lane
from schemas.api import LaneName, Plain, SourceSubmission
from schemas.frozen import Frozen
from workers.gateway.problems import Refused
from workers.settings import Settings

MAX_FIELDS = 16


class Wishes(Frozen):
    """The form fields beside the files."""

    lane: LaneName = "routine"
    deadline_s: float | None = Field(default=None, gt=0)
    client_reference: Plain | None = Field(default=None, max_length=128)
    webhook_endpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReadSubmission:
    """What the client asked for, checked for form."""

    lane: Lane
    deadline_s: float | None
    client_reference: str | None
    webhook_endpoint_id: str | None
    files: Sequence[BinaryIO] = ()
    source: str | None = None
    paths: Sequence[str] = ()


@asynccontextmanager
async def read_submission(request: Request, settings: Settings) -> AsyncIterator[ReadSubmission]:
    """Read the body by its type; uploaded files stay open inside the block.

    Raises
    ------
    Refused
        The type is not taken, or there are no or too many instances.
    RequestValidationError
        A field is wrong.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = await _read_form(request, settings)
        try:
            yield _from_form(form)
        finally:
            await form.close()
    elif kind == "application/json":
        yield _from_json(await request.body(), settings)
    else:
        raise Refused("unsupported-media-type", f"the body is {kind or 'of no stated type'}")


async def _read_form(request: Request, settings: Settings) -> FormData:
    try:
        return await request.form(max_files=settings.max_instances, max_fields=MAX_FIELDS)
    except HTTPException as error:
        # The parser has no other word for its two limits.
        if error.detail.startswith("Too many"):
            raise Refused("too-large", f"at most {settings.max_instances} instances and {MAX_FIELDS} fields a case") from error
        raise


def _from_form(form: FormData) -> ReadSubmission:
    files: list[BinaryIO] = []
    fields: dict[str, Any] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            files.append(value.file)
        else:
            fields[name] = value
    if not files:
        raise Refused("malformed", "the form holds no file")
    try:
        wishes = Wishes.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from error
    return ReadSubmission(Lane(wishes.lane), wishes.deadline_s, wishes.client_reference, wishes.webhook_endpoint_id, files=files)


def _from_json(body: bytes, settings: Settings) -> ReadSubmission:
    try:
        asked = SourceSubmission.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from error
    if asked.source not in settings.sources:
        raise Refused("invalid", "no source of that name is configured")
    if len(asked.paths) > settings.max_instances:
        raise Refused("too-large", f"at most {settings.max_instances} instances a case")
    return ReadSubmission(
        Lane(asked.lane),
        asked.deadline_s,
        asked.client_reference,
        asked.webhook_endpoint_id,
        source=asked.source,
        paths=asked.paths,
    )


BODY_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["instances"],
                    "properties": {
                        "instances": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "DICOM files of one study.",
                        },
                        **{name: {**part, "title": name} for name, part in Wishes.model_json_schema()["properties"].items()},
                    },
                },
                "example": {"instances": ["(a DICOM file)"], "lane": "urgent", "client_reference": "order-17"},
            },
            "application/json": {
                "schema": SourceSubmission.model_json_schema(),
                "example": {"source": "archive", "paths": ["2026/05/us-0001.dcm"], "lane": "routine"},
            },
        },
    }
}
