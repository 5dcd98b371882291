"""`.pt2` folders: they answer as the network that they were made of, and whatever else is in the archive does nothing."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.errors import ModelFailed
from pipeline.inference.runner import ModelRunner
from pipeline.inference.seeded import write_seeded_model
from pipeline.inference.weights import WeightsRefused
from tests.unit.inference.canary import Canary
from tests.unit.inference.whole_models import SIDE_PX, edited, exported, network_of, write_whole_model

MODEL, SAMPLES = "models/model.json", "sample_inputs/model.pt"
BATCH = np.random.default_rng(3).integers(0, 256, (3, 1, SIDE_PX, SIDE_PX), dtype=np.uint8)

Program = dict[str, Any]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same network as safetensors."""
    folder = tmp_path_factory.mktemp("plain")
    write_seeded_model(folder, seed=1, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    return folder


@pytest.fixture(scope="module")
def archive(plain: Path) -> bytes:
    return exported(network_of(plain))


@pytest.fixture
def sung(tmp_path: Path) -> Path:
    return tmp_path / "sung"


def load(folder: Path, content: bytes) -> ModelRunner:
    write_whole_model(folder, content, "weights.pt2")
    return ModelRunner.load(folder, device="cpu", threads=1)


def in_program(change: Callable[[Program], object]) -> dict[str, Callable[[bytes], bytes]]:
    """An edit of the archive's program."""

    def edit(record: bytes) -> bytes:
        program = json.loads(record)
        change(program)
        return json.dumps(program).encode()

    return {MODEL: edit}


def saved(thing: object) -> bytes:
    target = io.BytesIO()
    torch.save(thing, target)
    return target.getvalue()


def test_it_answers_as_the_network_that_it_was_made_of(plain: Path, archive: bytes, tmp_path: Path) -> None:
    ours = ModelRunner.load(plain, device="cpu", threads=1).run(BATCH)
    theirs = load(tmp_path, archive).run(BATCH)
    np.testing.assert_allclose(theirs.probability.astype(int), ours.probability.astype(int), rtol=0, atol=1)
    np.testing.assert_allclose(theirs.scores, ours.scores, rtol=0, atol=1e-5)


def test_it_is_warmed_at_every_batch_size(archive: bytes, tmp_path: Path) -> None:
    assert set(load(tmp_path, archive).warm_up()) == {1, 2, 4, 8, 16}


def test_a_program_for_one_batch_size_fails_the_warm_up_by_name(plain: Path, tmp_path: Path) -> None:
    target = io.BytesIO()
    torch.export.save(torch.export.export(network_of(plain), (torch.zeros(2, 1, SIDE_PX, SIDE_PX),)), target)
    with pytest.raises(ModelFailed):
        load(tmp_path, target.getvalue()).warm_up()


def test_the_canary_sings_where_torch_loads_the_archive_by_itself(archive: bytes, sung: Path) -> None:
    with pytest.raises(Exception, match=r".*"):
        torch.export.load(io.BytesIO(edited(archive, {SAMPLES: lambda _: saved(Canary(sung))})))
    assert sung.exists()


def test_a_pickle_among_the_sample_inputs_is_left_out(archive: bytes, tmp_path: Path, sung: Path) -> None:
    load(tmp_path, edited(archive, {SAMPLES: lambda _: saved(Canary(sung))})).run(BATCH)
    assert not sung.exists()


@pytest.mark.parametrize("config", ["model_weights_config.json", "model_constants_config.json"])
def test_a_pickle_among_the_weights_or_constants_is_refused_unopened(archive: bytes, tmp_path: Path, sung: Path, config: str) -> None:
    kind = "weight" if "weights" in config else "tensor"

    def name_a_pickle(record: bytes) -> bytes:
        payload = {"path_name": f"{kind}_777", "is_param": False, "use_pickle": True, "tensor_meta": None}
        return json.dumps({"config": json.loads(record)["config"] | {"backdoor": payload}}).encode()

    room = "weights" if kind == "weight" else "constants"
    content = edited(archive, {config: name_a_pickle}, {f"data/{room}/{kind}_777": saved(Canary(sung))})
    with pytest.raises(WeightsRefused, match="_777 is a pickle"):
        load(tmp_path, content)
    assert not sung.exists()


@pytest.mark.parametrize(
    "record", ["data/weights/model.pt", "data/constants/opaque_obj_0", "data/constants/custom_obj_0", "data/aotinductor/model/a.so"]
)
def test_records_that_torch_unpickles_or_runs_are_refused_unopened(archive: bytes, tmp_path: Path, sung: Path, record: str) -> None:
    with pytest.raises(WeightsRefused, match="is no record of an exported program"):
        load(tmp_path, edited(archive, {}, {record: pickle.dumps(Canary(sung))}))
    assert not sung.exists()


def test_text_that_torch_runs_as_a_guard_is_left_out(archive: bytes, tmp_path: Path, sung: Path) -> None:
    def guarded(program: Program) -> None:
        program["guards_code"] = [f"__import__('pathlib').Path({str(sung)!r}).touch() is None"]

    load(tmp_path, edited(archive, in_program(guarded))).run(BATCH)
    assert not sung.exists()


def in_first_expression(program: Any, text: str) -> bool:
    """Put a text in the place of the first symbolic expression."""
    if isinstance(program, dict):
        if "expr_str" in program:
            program["expr_str"] = text
            return True
        return any(in_first_expression(part, text) for part in program.values())
    return isinstance(program, list) and any(in_first_expression(part, text) for part in program)


def test_text_that_torch_runs_as_an_expression_is_refused(archive: bytes, tmp_path: Path, sung: Path) -> None:
    attack = f"__import__('pathlib').Path({str(sung)!r}).touch()"
    with pytest.raises(WeightsRefused, match="expr_str holds text that is no name"):
        load(tmp_path, edited(archive, in_program(lambda program: in_first_expression(program, attack))))
    assert not sung.exists()


@pytest.mark.parametrize(
    "target", ["torch.os.system", "torch.load", "torch.ops.aten.from_file.default", "torch.ops.other.op.default", "#x:y"]
)
def test_a_call_that_is_no_operator_on_tensors_is_refused(archive: bytes, tmp_path: Path, target: str) -> None:
    def called(program: Program) -> None:
        program["graph_module"]["graph"]["nodes"][0]["target"] = target

    with pytest.raises(WeightsRefused, match="is no operator on tensors"):
        load(tmp_path, edited(archive, in_program(called)))


def test_a_name_that_would_become_source_code_is_refused(archive: bytes, tmp_path: Path) -> None:
    def renamed(program: Program) -> None:
        program["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = "x=print('sung')"

    with pytest.raises(WeightsRefused, match="holds text that is no name"):
        load(tmp_path, edited(archive, in_program(renamed)))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", pickle.dumps({})])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(WeightsRefused, match=r"weights\.pt2: it is no archive"):
        load(tmp_path, content)


def test_a_record_that_is_there_twice_is_refused(archive: bytes, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = edited(archive, {}, {MODEL: b"{}"})
    with pytest.raises(WeightsRefused, match="are not those of one model"):
        load(tmp_path, content)
