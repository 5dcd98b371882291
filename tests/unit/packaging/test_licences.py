"""What the product installs by default is free to ship: no GPL among the locked packages."""

import re
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
LOCKED = {
    re.split(r"==", line)[0].lower().replace("_", "-")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
}
COPYLEFT = re.compile(r"\b(A?GPL|GNU (Affero )?General Public)", re.IGNORECASE)
LESSER = re.compile(r"LGPL|Lesser General Public", re.IGNORECASE)
ACCEPTED_LESSER = {"psycopg2-binary"}
OF_A_CUDA_BUILD = re.compile(r"(nvidia-|cuda-|triton$)")
"""Which of them come depends on the index that torch was taken from, and torch pins them: not for our lock to name."""


def installed_by(*extras: str) -> dict[str, Distribution]:
    """Everything that `pip install secondread[extras]` brings, from the installed metadata."""
    found: dict[str, Distribution] = {}
    todo = [("secondread", frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found[name] = package = distribution(name)
        for text in package.requires or []:
            needed = Requirement(text)
            if OF_A_CUDA_BUILD.match(needed.name):
                continue
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                todo.append((needed.name.lower().replace("_", "-"), frozenset(needed.extras)))
    del found["secondread"]
    return found


def stated_licence(package: Distribution) -> str:
    """What the package says of its licence: the SPDX expression, else the classifiers, else the field."""

    def of(field: str) -> list[str]:
        return package.metadata.get_all(field) or []

    classifiers = [text for text in of("Classifier") if text.startswith("License")]
    return "; ".join(of("License-Expression") or classifiers or of("License"))[:200]


DEFAULT = installed_by("cpu")


@pytest.mark.parametrize("name", sorted(DEFAULT))
def test_a_default_package_is_not_under_the_gpl(name: str) -> None:
    licence = stated_licence(DEFAULT[name])
    assert licence, f"{name} states no licence"
    if LESSER.search(licence):
        assert name in ACCEPTED_LESSER
    else:
        assert not COPYLEFT.search(licence), f"{name}: {licence}"


def test_every_default_package_is_locked() -> None:
    assert set(DEFAULT) <= LOCKED


def test_the_gpl_decoder_is_absent() -> None:
    assert "pylibjpeg-libjpeg" not in LOCKED


def test_the_client_alone_brings_no_server_and_no_torch() -> None:
    assert not {"torch", "celery", "sqlalchemy", "numpy", "redis", "pydicom", "fastapi"} & set(installed_by())
