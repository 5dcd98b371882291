"""`.pt2`, what `torch.export.save` writes: taken apart, checked against what a graph of tensors needs, and put together anew.

`torch.export.load` of torch 2.13 opens pickles: the sample inputs (with `weights_only` first and without it where that fails),
weights and constants that say `use_pickle`, and opaque objects. It also runs text of the archive as Python: `guards_code`,
symbolic expressions (`sympy.sympify`), names that become source code, and targets of calls, which it looks up from `torch`
on (`torch.os.system` is one). So torch is given an archive that we wrote: without sample inputs, guards and notes, with
names that are names, and with calls of ATen's operators alone. No unpickler runs, ours or torch's.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.export.passes import move_to_device_pass

from pipeline.inference.formats.archive import records_of, refused, unknown_records, written

MODEL: Final = "models/model.json"
WEIGHTS: Final = "data/weights/model_weights_config.json"
CONSTANTS: Final = "data/constants/model_constants_config.json"
SAMPLES: Final = "data/sample_inputs/model.pt"
KEPT: Final = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/[a-z_]+|\.format_version|\.storage_alignment"
    rf"|{re.escape(MODEL)}|{re.escape(WEIGHTS)}|{re.escape(CONSTANTS)}|data/weights/weight_\d+|data/constants/tensor_\d+"
)
LEFT_OUT: Final = re.compile(rf"{re.escape(SAMPLES)}|extra/.*")
PAYLOAD: Final = re.compile(r"(weight|tensor)_\d+")
OPERATOR: Final = re.compile(
    r"torch\.ops\.aten\.[a-z0-9_]+\.[A-Za-z0-9_]+|_operator\.(add|sub|mul|floordiv|truediv|mod|neg|eq|ne|ge|gt|le|lt|getitem)"
    r"|math\.(ceil|floor|trunc)|torch\.sym_(int|float|max|min|not|sum)"
)
FORBIDDEN: Final = re.compile(r"torch\.ops\.aten\.(from_file|save|_?print)\..*")
"""Of ATen's, those that read and write files."""
EXPRESSION: Final = re.compile(
    r"(?:Symbol\('[a-z]+\d+'(?:, (?:positive|nonnegative|integer)=(?:True|False))*\)|[a-z]\d+|-?\d+|[-+*/(), ]"
    r"|Integer|Add|Mul|Pow|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv)*"
)
"""Arithmetic on symbols: as torch writes it, without a name that Python could call otherwise."""
WORD: Final = re.compile(r"[A-Za-z0-9_.]{0,512}")
"""Names of nodes, parameters, types: nothing that does anything where it ends in source code."""
TREE_TYPES: Final = {"builtins.tuple", "builtins.list", "builtins.dict", None}
FREE_TEXT: Final = {"expr_str": EXPRESSION, "torch_version": re.compile(r"[A-Za-z0-9.+<=]{0,64}")}
"""By the field, where it is no name."""


def read_exported(content: bytes, place: str, device: torch.device) -> Callable[..., Any]:
    """Return the program as a module on the device.

    Raises
    ------
    WeightsRefused
        The archive holds what a graph of tensors does not need.
    """
    records = records_of(content, place)
    if unknown := sorted(unknown_records(records, re.compile(f"{KEPT.pattern}|{LEFT_OUT.pattern}"))):
        raise refused(place, f"{unknown[0]} is no record of an exported program")
    clean = {name: data for name, data in records.items() if KEPT.fullmatch(name)}
    try:
        clean[MODEL] = json.dumps(_checked_program(json.loads(records[MODEL]), place)).encode()
        for config in (WEIGHTS, CONSTANTS):
            _check_payloads(json.loads(records[config]), place)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise refused(place, "it is no exported program") from error
    # Empty: torch takes that for a program without sample inputs.
    clean[SAMPLES] = b""
    program = torch.export.load(io.BytesIO(written(clean)))
    if device.type != "cpu":
        program = move_to_device_pass(program, device)
    return program.module()


def _check_payloads(config: dict[str, Any], place: str) -> None:
    for payload in config["config"].values():
        if payload["use_pickle"] or not PAYLOAD.fullmatch(payload["path_name"]):
            raise refused(place, f"{payload['path_name']} is a pickle")


def _checked_program(program: dict[str, Any], place: str) -> dict[str, Any]:
    module = program["graph_module"]
    program["guards_code"] = []
    module["metadata"], module["treespec_namedtuple_fields"] = {}, {}
    for node in module["graph"]["nodes"]:
        node["metadata"] = {}
        if not OPERATOR.fullmatch(node["target"]) or FORBIDDEN.fullmatch(node["target"]):
            raise refused(place, f"it calls {node['target'][:80]!r}, which is no operator on tensors")
    for call in module["module_call_graph"]:
        for key in ("in_spec", "out_spec"):
            if call["signature"] is not None:
                _check_tree(json.loads(call["signature"][key])[1], place)
    for key, text in _texts(program):
        if not FREE_TEXT.get(key, WORD).fullmatch(text):
            raise refused(place, f"its {key or 'program'} holds text that is no name")
    return program


def _check_tree(spec: dict[str, Any], place: str) -> None:
    if spec["type"] not in TREE_TYPES:
        raise refused(place, f"its inputs or outputs are {spec['type'][:80]!r}")
    for child in spec["children_spec"]:
        _check_tree(child, place)


def _texts(part: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of the program, names of fields included, with the field that it stands in; the trees were checked."""
    if isinstance(part, str):
        yield key, part
    elif isinstance(part, list):
        for each in part:
            yield from _texts(each, key)
    elif isinstance(part, dict):
        for name, each in part.items():
            yield "", name
            if name not in ("in_spec", "out_spec"):
                yield from _texts(each, name)
