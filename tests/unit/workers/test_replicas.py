"""Which inference processes are started for which devices, and what each of them sees.

No NVIDIA device was there when this was written: for slices the environment that the process would get is looked at, and for devices
that are not there, that they are refused.
"""

from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline.inference.absence import DeviceAbsent
from workers.deployment import _process_specs, deployment
from workers.replicas import ManyDevices, look, own_device, replicas, require_devices, torch_device, visible
from workers.settings import Settings

SLICE = "MIG-3f2504e0-4f89-11d3-9a0c-0305e82c3301"


@pytest.mark.parametrize(
    ("device", "workers", "wanted"),
    [
        ("cpu", 1, ["cpu"]),
        ("cpu,cpu", 1, ["cpu", "cpu"]),
        ("cuda:0, cuda:1", 2, ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]),
        (f"cuda:{SLICE},cpu", 1, [f"cuda:{SLICE}", "cpu"]),
    ],
)
def test_each_device_has_its_processes(device: str, workers: int, wanted: list[str]) -> None:
    found = replicas(Settings(device=device, inference_workers=workers))

    assert [replica.device for replica in found] == wanted
    assert [replica.name for replica in found] == [f"inference-{number}" for number in range(1, len(wanted) + 1)]


@pytest.mark.parametrize("device", ["", "gpu", "cpu;cuda:0", "cuda:", "cuda:-1", "cpu,", "cuda:MIG-", "cuda:0 cuda:1"])
def test_what_is_no_device_is_refused_in_a_sentence(device: str) -> None:
    with pytest.raises(ValidationError, match="no device is called"):
        Settings(device=device)


def test_a_slice_is_the_only_device_that_its_process_sees() -> None:
    assert visible(f"cuda:{SLICE}") == {"CUDA_VISIBLE_DEVICES": SLICE}
    assert torch_device(f"cuda:{SLICE}") == "cuda:0"
    # By number all are seen, so that numbers mean the same in every process.
    assert visible("cuda:1") == visible("cpu") == {}
    assert torch_device("cuda:1") == "cuda:1"


def test_a_process_serves_the_slice_that_it_was_started_for(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(device=f"cuda:{SLICE}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SLICE)
    assert own_device(settings) == "cuda:0"


@pytest.mark.parametrize("sees", [None, "0", "MIG-of-somebody-else"])
def test_a_process_that_was_not_started_for_its_slice_takes_no_other(monkeypatch: pytest.MonkeyPatch, sees: str | None) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if sees is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", sees)
    with pytest.raises(DeviceAbsent, match=f"start it with CUDA_VISIBLE_DEVICES={SLICE}"):
        own_device(Settings(device=f"cuda:{SLICE}"))


def test_one_process_does_not_serve_two_devices() -> None:
    with pytest.raises(ManyDevices, match="names 2 devices"):
        own_device(Settings(device="cpu,cpu"))


def test_devices_that_are_not_there_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    begun: list[str] = []
    settings = Settings(device="cpu,cuda:77", state_dir=tmp_path / "state")

    refused = pytest.raises(DeviceAbsent, match=r"^cuda:77 is not there: torch \S+ sees cpu \(")
    with refused, deployment(settings, lambda name, _: begun.append(name)):
        pytest.fail("it was entered")
    assert begun == []
    assert not (tmp_path / "state").exists()


def test_a_slice_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(DeviceAbsent, match=rf"^cuda:{SLICE} is not there: torch \S+ sees cpu \("):
        require_devices(Settings(device=f"cuda:{SLICE}"))


def test_the_cpu_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.replicas.look", lambda variables: pytest.fail("torch was loaded for nothing"))
    require_devices(Settings(device="cpu,cpu"))


def test_a_torch_that_does_not_load_is_said(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is missing')")
    with pytest.raises(DeviceAbsent, match="torch could not say which devices there are: ImportError: libcudart is missing"):
        look({"PYTHONPATH": str(tmp_path)})


def test_each_child_gets_its_device_and_sees_its_slice_alone(tmp_path: Path) -> None:
    specs = {spec.name: spec for spec in _process_specs(Settings(device=f"cpu,cuda:{SLICE}"), tmp_path)}

    assert specs["inference-1"].env["SECONDREAD_DEVICE"] == "cpu"
    assert "CUDA_VISIBLE_DEVICES" not in specs["inference-1"].env
    assert specs["inference-2"].env["SECONDREAD_DEVICE"] == f"cuda:{SLICE}"
    assert specs["inference-2"].env["CUDA_VISIBLE_DEVICES"] == SLICE
    # Whoever does not run a model is not kept from seeing anything.
    assert "CUDA_VISIBLE_DEVICES" not in specs["intake"].env
