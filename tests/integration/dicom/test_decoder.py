import os
import signal
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pytest

from pipeline.dicom.child_process import ChildProcess
from pipeline.dicom.decoder import Decoder
from pipeline.dicom.errors import DecoderUnavailable, DecodeTimedOut, NotDicom, TooLarge
from pipeline.dicom.instance import MIB, DecodeLimits, StoredArray
from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.errors import DecoderCrashed

TIMEOUT_S = 20.0
REPOSITORY = Path(__file__).resolve().parents[3]
PARENT_THAT_DIES = """
import os
from pipeline.dicom.decoder import Decoder
pool = Decoder(child_count=1)
pool.warm()
print(pool.child_pids()[0], flush=True)
os._exit(1)
"""


def picture(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (40 + seed, 30)).astype(np.uint8)


def test_a_phantom_comes_back_with_its_values_and_its_header(decoder: Decoder) -> None:
    decoded = decoder.decode(phantom_instance(picture(1)), timeout_s=TIMEOUT_S)
    np.testing.assert_array_equal(decoded.stored[0], picture(1))
    assert decoded.header.body_part == "BREAST"
    assert decoder.peak_rss_bytes > 10 * MIB


def test_a_refusal_crosses_the_process_border_as_its_own_class(decoder: Decoder) -> None:
    with pytest.raises(NotDicom):
        decoder.decode(b"<html>", timeout_s=TIMEOUT_S)


def test_many_threads_get_each_its_own_image(decoder: Decoder) -> None:
    def decoded(seed: int) -> StoredArray:
        return decoder.decode(phantom_instance(picture(seed), PhantomStudy(name=str(seed))), timeout_s=TIMEOUT_S).stored

    with ThreadPoolExecutor(8) as threads:
        for seed, stored in zip(range(40), threads.map(decoded, range(40)), strict=True):
            np.testing.assert_array_equal(stored[0], picture(seed))


def test_a_child_that_was_killed_while_it_waited_is_replaced_unnoticed(alone: Decoder) -> None:
    victim = alone.child_pids()[0]
    os.kill(victim, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(victim)], timeout=0.2)
    decoded = alone.decode(phantom_instance(picture(2)), timeout_s=TIMEOUT_S)
    np.testing.assert_array_equal(decoded.stored[0], picture(2))
    assert alone.child_pids()[0] != victim


def test_a_child_that_dies_with_the_input_aboard_is_a_crash() -> None:
    child = ChildProcess(DecodeLimits())
    try:
        child.await_ready(until_s=time.monotonic() + TIMEOUT_S)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(DecoderCrashed) as crash:
            child.decode(phantom_instance(picture(3)), timeout_s=TIMEOUT_S)
        assert crash.value.facts == {"exit_status": -signal.SIGKILL}
        assert child.is_spent
    finally:
        child.end()


def test_a_child_that_does_not_answer_is_ended_and_the_next_case_is_served(alone: Decoder) -> None:
    stuck = alone.child_pids()[0]
    os.kill(stuck, signal.SIGSTOP)
    with pytest.raises(DecodeTimedOut):
        alone.decode(phantom_instance(picture(4)), timeout_s=0.2)
    assert not psutil.pid_exists(stuck)
    np.testing.assert_array_equal(alone.decode(phantom_instance(picture(4)), timeout_s=TIMEOUT_S).stored[0], picture(4))


def test_a_thread_that_finds_no_free_child_in_time_is_told_so_and_the_input_is_not_blamed() -> None:
    with Decoder(child_count=0) as nobody, pytest.raises(DecoderUnavailable):
        nobody.decode(phantom_instance(picture(5)), timeout_s=0.05)


def test_a_child_that_grew_beyond_the_bound_is_replaced_after_its_answer() -> None:
    with Decoder(child_count=1, limits=DecodeLimits(retire_bytes=1)) as pool:
        pool.warm()
        first = pool.child_pids()[0]
        pool.decode(phantom_instance(picture(6)), timeout_s=TIMEOUT_S)
        assert pool.child_pids()[0] != first
        assert not psutil.pid_exists(first)


def test_an_instance_that_needs_more_memory_than_a_child_may_take_is_too_large() -> None:
    whole = phantom_instance(np.zeros((8000, 8000), np.uint8)).replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.1.99", 1)
    # The longer syntax UID moves the data set: the meta element's length must say so.
    at = whole.index(b"1.2.840.10008.1.2.1.99")
    whole = whole[: at - 2] + (22).to_bytes(2, "little") + whole[at:]
    start = whole.index(b"\x08\x00\x05\x00CS")
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = whole[:start] + packer.compress(whole[start:]) + packer.flush()
    limits = DecodeLimits(memory_bytes=288 * MIB)
    with Decoder(child_count=1, limits=limits) as pool, pytest.raises(TooLarge):
        pool.decode(packed, timeout_s=TIMEOUT_S)


def test_a_file_beyond_the_budget_is_refused_before_it_is_sent(decoder: Decoder) -> None:
    small = DecodeLimits(pixel_budget_bytes=100)
    with Decoder(child_count=0, limits=small) as pool, pytest.raises(TooLarge):
        pool.decode(phantom_instance(picture(7)), timeout_s=TIMEOUT_S)


def test_children_end_with_the_process_that_started_them() -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT_THAT_DIES],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    pid = int(parent.stdout)
    if psutil.pid_exists(pid):
        _, alive = psutil.wait_procs([psutil.Process(pid)], timeout=10)
        assert not alive


def test_closing_ends_every_child() -> None:
    pool = Decoder(child_count=2)
    pool.warm()
    children = pool.child_pids()
    pool.close()
    assert not any(map(psutil.pid_exists, children))
    with pytest.raises(DecoderUnavailable):
        pool.decode(phantom_instance(picture(8)), timeout_s=TIMEOUT_S)
