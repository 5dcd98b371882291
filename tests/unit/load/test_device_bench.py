"""The device's bench where there is no device."""

import sys

import pytest
import torch

from tests.load import device_bench


def test_without_a_device_it_measures_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["device_bench"])
    with pytest.raises(SystemExit) as ended:
        device_bench.main()
    assert ended.value.code == device_bench.NO_DEVICE
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "This measures a CUDA device, and torch sees none here: nothing was measured.\n")
