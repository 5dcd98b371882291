"""`.ts`, what `torch.jit.save` writes: its source is read before torch compiles it.

A TorchScript archive holds source text in TorchScript, a language without Python's built-ins, and the attributes as a pickle
that torch's own C++ unpickler reads: it builds tensors, numbers, lists and the archive's own classes, and looks up nothing in
Python. What it can do to us lies in the language: `__setstate__` runs while the archive is loaded, and `torch.save`,
`torch.from_file` and operators of other libraries reach the file system. Such archives are refused, unopened by torch.

Torch has deprecated the format in favour of `torch.export`: bring `.pt2` where you can.
"""

import ast
import io
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from pipeline.inference.formats.archive import records_of, refused, unknown_records, written

KNOWN: Final = re.compile(
    r"version|byteorder|data\.pkl|constants\.pkl|\.data/[a-z_]+|\.format_version|\.storage_alignment"
    r"|(constants|data)/\d+|code/[A-Za-z0-9_./]+\.py"
)
LEFT_OUT: Final = re.compile(r"code/.*\.debug_pkl|traced_inputs(\.pkl|/\d+)|extra/.*")
"""What a compiler's message or a trace needs, and a run does not."""
FORBIDDEN: Final = {"save", "load", "from_file", "hub", "package", "jit", "classes", "__setstate__", "__getstate__", "__import__"}
"""Names that a model has no use for: they reach files, or run before the first image."""
NAMESPACES: Final = {"aten", "prim"}


def read_scripted(content: bytes, place: str, device: torch.device) -> Callable[..., Any]:
    """Return the module on the device, ready to answer.

    Raises
    ------
    WeightsRefused
        The archive is no TorchScript, or its source does what a network does not need.
    """
    records = records_of(content, place)
    clean = {name: data for name, data in records.items() if not LEFT_OUT.fullmatch(name)}
    if unknown := sorted(unknown_records(clean, KNOWN)):
        raise refused(place, f"{unknown[0]} is no record of TorchScript")
    for name, source in clean.items():
        if name.endswith(".py"):
            _check(source, place)
    # As we have read it: another reader may find other records in the same bytes.
    module = torch.jit.load(io.BytesIO(written(clean)), map_location=device)  # type: ignore[no-untyped-call]
    graph: Callable[..., Any] = module.eval()
    return graph


def _check(source: bytes, place: str) -> None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise refused(place, "its source cannot be read") from error
    for word in _words(tree):
        if word in FORBIDDEN:
            raise refused(place, f"its source uses {word!r}, which a network does not need")
    for node in ast.walk(tree):
        # `ops.aten.add`: the namespace of an operator.
        is_operator = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ops"
        if is_operator and node.attr not in NAMESPACES:  # type: ignore[attr-defined]
            raise refused(place, "its source calls operators of another library")


def _words(tree: ast.Module) -> Iterator[str]:
    """Every name that the source uses or defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
