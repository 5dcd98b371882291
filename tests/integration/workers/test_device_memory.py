"""A device whose memory gives out, or that is lost: nothing is lost with it, and the next batch fits."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from prometheus_client import REGISTRY

from pipeline.flow import Pool
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.registry import ModelRegistry
from tests.integration.workers import crowded
from tests.integration.workers.model_line import in_line, put_in_line, states_after
from tests.integration.workers.stub_cases import StubCases
from workers.former import Former
from workers.stage_task import PoolRuntime

pytestmark = pytest.mark.services

MODEL = "breast-lesion:1"
SIDE_PX = 256


@pytest.fixture
def device() -> crowded.Device:
    """At first it holds what a batch may have."""
    return crowded.Device(room=16)


@pytest.fixture
def former_on(runtime: PoolRuntime, device: crowded.Device) -> Callable[..., Former]:
    """Start a model thread's former on the device."""

    def start(on_device_lost: Callable[[], None] | None = None) -> Former:
        with crowded.on(device):
            registry = ModelRegistry(SHIPPED_MODELS, device="cpu", threads=1)
            registry.load()
        assert not registry.refused
        device.sizes.clear()
        return Former(
            replace(runtime, pool=Pool.INFERENCE), registry, on_death=lambda: pytest.fail("it died"), on_device_lost=on_device_lost
        )

    return start


FormerOn = Callable[..., Former]


def overflows() -> float:
    labels = {"model": MODEL, "device": "cpu"}
    return REGISTRY.get_sample_value("secondread_gpu_out_of_memory_total", labels) or 0.0


@pytest.mark.parametrize("count", [9, 40])
def test_a_device_that_turns_out_to_hold_eight_costs_one_failed_pass_and_no_case(
    runtime: PoolRuntime, cases: StubCases, device: crowded.Device, former_on: FormerOn, count: int
) -> None:
    former, before = former_on(), overflows()
    device.room = 8
    wanted = dict.fromkeys(in_line(runtime, MODEL, count), "awaiting_report")

    assert states_after(former, cases, wanted) == wanted
    first, *later = device.sizes
    assert first > 8 >= max(later)
    assert former.lines[0].cap.images == 8
    assert overflows() - before == 1
    # Each was claimed once for its preparation and once for its reading: nobody went back and nobody was charged.
    assert {row.attempt for row in cases.rows().values()} == {2}

    device.sizes.clear()
    wanted |= dict.fromkeys(in_line(runtime, MODEL, 16), "awaiting_report")
    assert states_after(former, cases, wanted) == wanted
    assert max(device.sizes) <= 8


def test_a_device_that_holds_eight_from_the_start_is_never_asked_for_more(
    runtime: PoolRuntime, cases: StubCases, device: crowded.Device, former_on: FormerOn
) -> None:
    device.room = 8
    former = former_on()
    wanted = dict.fromkeys(in_line(runtime, MODEL, 20), "awaiting_report")

    assert states_after(former, cases, wanted) == wanted
    assert max(device.sizes) <= 8
    assert sum(device.sizes) == 20


def test_a_case_of_which_not_one_image_fits_fails_by_name_at_once_and_its_company_is_read(
    runtime: PoolRuntime, cases: StubCases, device: crowded.Device, former_on: FormerOn
) -> None:
    former = former_on()
    device.no_room_for = 7
    images = [np.full((1, SIDE_PX, SIDE_PX), value, np.uint8) for value in (1, 2, 7, 3)]
    *company, after = in_line(runtime, MODEL, images)
    *company, greedy = company
    wanted = dict.fromkeys([*company, after], "awaiting_report") | {greedy: "failed"}

    assert states_after(former, cases, wanted) == wanted
    assert cases.rows()[greedy].failure["code"] == "too-large-for-device"
    assert cases.rows()[greedy].tries <= 1


def test_a_lost_device_gives_its_batch_back_at_once_and_the_next_process_reads_each_case_by_itself(
    runtime: PoolRuntime, cases: StubCases, device: crowded.Device, former_on: FormerOn
) -> None:
    lost: list[bool] = []
    former = former_on(on_device_lost=lambda: lost.append(True))
    held = in_line(runtime, MODEL, 5)
    device.is_lost = True
    with pytest.raises(torch.AcceleratorError):
        states_after(former, cases, dict.fromkeys(held, "awaiting_report"))

    rows = cases.rows()
    assert lost
    assert {(row.state, row.claimed_by, row.tries, row.strikes) for row in rows.values()} == {("awaiting_inference", None, 0, 1)}

    device.is_lost = False
    put_in_line(runtime, MODEL, cases.rungs(held))
    wanted = dict.fromkeys(held, "awaiting_report")
    assert states_after(former_on(), cases, wanted) == wanted
    assert {row.work["inferred"]["batch_size"] for row in cases.rows().values()} == {1}


def test_who_loses_the_device_again_and_again_is_set_aside_after_three_runs(
    runtime: PoolRuntime, cases: StubCases, device: crowded.Device, former_on: FormerOn
) -> None:
    """given one case that loses the device each time, once in company and then alone, then no worker may claim it a fourth time"""
    killer, innocent = in_line(runtime, MODEL, 2)
    for is_alone in (False, True, True):
        former = former_on(on_device_lost=lambda: None)
        device.is_lost = True
        with pytest.raises(torch.AcceleratorError):
            states_after(former, cases, {killer: "awaiting_report"})
        assert device.sizes == [1 if is_alone else 2]
        device.is_lost = False
        put_in_line(runtime, MODEL, cases.rungs([killer]))

    rows = cases.rows()
    assert (rows[killer].tries, rows[killer].strikes) == (2, 3)
    assert (rows[innocent].tries, rows[innocent].strikes) == (0, 1)
