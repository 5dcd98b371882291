"""`/v1/cases/{id}/overlay.png` and `probability.png`: what a result's images look like."""

import json
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.engine import Row

from pipeline.errors import IdentityMismatch, UploadMissing
from pipeline.observability import metrics
from pipeline.observability.log import logger
from pipeline.persistence.ledger.admission import ApiKey
from pipeline.persistence.pictures import picture_of
from pipeline.persistence.uploads import ObjectPlace, pictures_key
from schemas.identifiers import public_id
from workers.gateway.cases import CaseId, Place, require_result
from workers.gateway.door import Door
from workers.gateway.keys import Reader
from workers.gateway.problems import Refused

router = APIRouter(prefix="/v1/cases", tags=["cases"])
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, max-age=3600"}


class Picture:
    """Which image of which result version is asked for."""

    def __init__(self, image: Annotated[int, Query(ge=1)] = 1, version: Annotated[int | None, Query(ge=1)] = None) -> None:
        self.image, self.version = image, version


@router.get("/{case_id}/overlay.png", summary="Look at the overlay", response_class=Response)
async def show_overlay(case_id: CaseId, key: Reader, door: Place, asked: Annotated[Picture, Depends()]) -> Response:
    """The image with the findings' outlines, marked as unverified."""
    return await _picture(door, key, case_id, asked, "overlay.png")


@router.get("/{case_id}/probability.png", summary="Look at the probability map", response_class=Response)
async def show_probability(case_id: CaseId, key: Reader, door: Place, asked: Annotated[Picture, Depends()]) -> Response:
    """The model's probability map on the source image's grid: grey value / 255."""
    return await _picture(door, key, case_id, asked, "probability.png")


async def _picture(door: Door, key: ApiKey, case_id: UUID, asked: Picture, kind: str) -> Response:
    row = await require_result(door, key, case_id, asked.version)
    try:
        data = await run_in_threadpool(_read, door.services.uploads, row, case_id, f"image-{asked.image}/{kind}")
    except UploadMissing:
        raise Refused("not-found", "this result has no such picture: the image was not read") from None
    except IdentityMismatch as error:
        # The picture of another case, or a damaged one, is worse than none.
        metrics.IDENTITY_MISMATCHES.labels("picture").inc()
        logger().error("picture_damaged", case_id=public_id("case", case_id))
        raise Refused("picture-damaged", case_id=public_id("case", case_id)) from error
    return Response(data, media_type="image/png", headers=HEADERS)


def _read(uploads: ObjectPlace, row: Row[Any], case_id: UUID, name: str) -> bytes:
    """Read one picture of a result, if it is the one that the result vouches for."""
    digests = {name: digest for image in json.loads(row.body)["images"] for name, digest in image["artefacts"].items()}
    if name not in digests:
        raise UploadMissing("the result lists no such picture")
    picture = picture_of(uploads.read(pictures_key(case_id, row.attempt)), name)
    if sha256(picture).hexdigest() != digests[name]:
        raise IdentityMismatch("the stored picture has another digest than the result's", case_id=case_id, differs="picture")
    return picture
