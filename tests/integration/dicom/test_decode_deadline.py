"""A slow decode ends when the case's time ends, and says so; the instance is at fault only where it had the time that it may take."""

import os
import signal
import time
from uuid import UUID

import numpy as np
import pytest

from pipeline.cases.fetched import FetchedInstance
from pipeline.deadline import utc_now
from pipeline.dicom.decoder import Decoder
from pipeline.dicom.errors import DecodeTimedOut
from pipeline.dicom.phantom import phantom_instance
from pipeline.errors import OutOfTime
from pipeline.inference.card import SHIPPED_MODELS, find_cards
from pipeline.stages.preprocess import PreprocessTools, preprocess
from pipeline.tensors.memory import MemoryStore
from schemas.work import PreparedCase

CASE = UUID(int=5)
LONG_S = 100.0
IMAGE = phantom_instance(np.random.default_rng(5).integers(0, 256, (40, 30)).astype(np.uint8))


def prepared(decoder: Decoder, *, limit_s: float, left_s: float) -> PreparedCase:
    tensors = MemoryStore(capacity_bytes=16 * 1024 * 1024)
    tools = PreprocessTools(decoder, find_cards(SHIPPED_MODELS), tensors, decode_timeout_s=limit_s, until_s=time.monotonic() + left_s)
    return preprocess([FetchedInstance(IMAGE, "0" * 64)], case_id=CASE, generation=1, tools=tools, now=utc_now())


def freeze(decoder: Decoder) -> None:
    """A decode that does not end."""
    for pid in decoder.child_pids():
        os.kill(pid, signal.SIGSTOP)


def test_a_decode_that_does_not_end_is_ended_with_the_cases_time(alone: Decoder) -> None:
    freeze(alone)
    begun = time.monotonic()

    with pytest.raises(OutOfTime):
        prepared(alone, limit_s=LONG_S, left_s=0.5)

    assert 0.4 < time.monotonic() - begun < LONG_S / 2


def test_the_same_decode_is_the_instances_fault_where_its_own_limit_comes_first(alone: Decoder) -> None:
    freeze(alone)

    with pytest.raises(DecodeTimedOut):
        prepared(alone, limit_s=0.5, left_s=LONG_S)


def test_nothing_is_decoded_once_the_time_is_over(alone: Decoder) -> None:
    with pytest.raises(OutOfTime):
        prepared(alone, limit_s=LONG_S, left_s=-1.0)

    # Its child was not asked, so it is still there.
    assert len(alone.child_pids()) == 1


def test_a_case_with_time_left_is_prepared(alone: Decoder) -> None:
    assert prepared(alone, limit_s=LONG_S, left_s=LONG_S).images[0].outcome == "ready"
