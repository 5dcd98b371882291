"""`/v1/webhook-endpoints`: where a tenant wants to be told."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Response
from fastapi.concurrency import run_in_threadpool
from uuid6 import uuid7

from pipeline.callbacks.destination import ForbiddenDestination, NameNotResolved
from pipeline.callbacks.signature import new_secret
from pipeline.persistence.ledger.deliveries import Endpoint, add_endpoint, disable_endpoint, find_endpoint
from schemas.api import EndpointRequest, EndpointView
from schemas.identifiers import parse_public_id, public_id
from workers.gateway.door import Door, at_the_door
from workers.gateway.keys import WebhookOwner
from workers.gateway.problems import Refused
from workers.wiring import webhook_policy

router = APIRouter(prefix="/v1/webhook-endpoints", tags=["webhooks"])
LOOK_UP_S = 3.0
Place = Annotated[Door, Depends(at_the_door)]


@router.post("", status_code=201, response_model=EndpointView, summary="Add an endpoint")
async def add(asked: EndpointRequest, key: WebhookOwner, door: Place) -> EndpointView:
    """Store an address that may be told, and show its signing secret once (Standard Webhooks)."""
    policy = webhook_policy(door.services.settings)
    try:
        # Checked again before every delivery: a name may point elsewhere by then.
        await run_in_threadpool(policy.admit, asked.url, timeout_s=LOOK_UP_S)
    except ForbiddenDestination as error:
        raise Refused("endpoint-forbidden", f"the rule {error.rule} forbids it") from error
    except NameNotResolved as error:
        raise Refused("endpoint-forbidden", "its name does not resolve") from error
    endpoint = Endpoint(UUID(bytes=uuid7().bytes), key.tenant_id, asked.url, (new_secret(),))
    await run_in_threadpool(add_endpoint, door.services.ledger, endpoint)
    return EndpointView(webhook_endpoint_id=public_id("whe", endpoint.id), url=endpoint.url, secret=endpoint.secrets[0])


@router.get("/{endpoint_id}", response_model=EndpointView, summary="Read an endpoint")
async def show(endpoint_id: str, key: WebhookOwner, door: Place) -> EndpointView:
    """Show an endpoint without its secret."""
    endpoint = await _require(endpoint_id, key, door)
    return EndpointView(webhook_endpoint_id=public_id("whe", endpoint.id), url=endpoint.url)


@router.delete("/{endpoint_id}", status_code=204, summary="Remove an endpoint")
async def remove(endpoint_id: str, key: WebhookOwner, door: Place) -> Response:
    """Tell it nothing any more."""
    endpoint = await _require(endpoint_id, key, door)
    await run_in_threadpool(disable_endpoint, door.services.ledger, endpoint.id, code="removed")
    return Response(status_code=204)


async def _require(text: str, key: WebhookOwner, door: Door) -> Endpoint:
    endpoint_id = parse_public_id("whe", text)
    found = await run_in_threadpool(find_endpoint, door.services.ledger, endpoint_id, tenant_id=key.tenant_id) if endpoint_id else None
    if found is None:
        raise Refused("not-found")
    return found
