from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from workers.cli.files import case_name, find_files, group_files
from workers.cli.study_of import study_of

PART_10 = b"\0" * 128 + b"DICM"
IMAGE = np.zeros((4, 4), np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images among other things, one level deep."""
    (tmp_path / "deep").mkdir()
    for name, content in {
        "b.dcm": b"",
        "A.DCM": b"",
        "deep/no-suffix": PART_10,
        "DICOMDIR": PART_10,
        "notes.txt": b"text",
        "short": b"DICM",
    }.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_in_a_folder_only_what_looks_like_dicom_is_taken(folder: Path) -> None:
    assert [str(file.relative_to(folder)) for file in find_files([folder])] == ["A.DCM", "b.dcm", "deep/no-suffix"]


def test_what_is_named_is_taken_whatever_it_looks_like(folder: Path) -> None:
    assert find_files([folder / "notes.txt"]) == [folder / "notes.txt"]


def test_a_file_that_is_named_twice_is_sent_once(folder: Path) -> None:
    assert len(find_files([folder / "b.dcm", folder, folder / "deep" / ".." / "b.dcm"])) == 3


def test_each_file_is_a_case_by_default(folder: Path) -> None:
    files = find_files([folder])
    assert group_files(files, is_study_per_case=None) == [(file,) for file in files]


def test_all_files_can_be_one_case(folder: Path) -> None:
    files = find_files([folder])
    assert group_files(files, is_study_per_case=False) == [tuple(files)]


def test_files_of_one_study_form_a_case(tmp_path: Path) -> None:
    files = []
    for name, study, number in (("1", "one", 1), ("2", "other", 1), ("3", "one", 2)):
        files.append(tmp_path / f"{name}.dcm")
        files[-1].write_bytes(phantom_instance(IMAGE, PhantomStudy(name=study, instance_number=number)))
    files.append(tmp_path / "broken.dcm")
    files[-1].write_bytes(b"no DICOM at all")
    assert group_files(files, is_study_per_case=True) == [(files[0], files[2]), (files[1],), (files[3],)]


@pytest.mark.parametrize("content", [b"", b"no DICOM at all", PART_10, PART_10 + b"\xff" * 40])
def test_what_names_no_study_has_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert study_of(file) is None


def test_a_case_is_called_by_its_first_file() -> None:
    assert case_name([Path("x/a.dcm")]) == "a.dcm"
    assert case_name([Path("x/a.dcm"), Path("x/b.dcm"), Path("x/c.dcm")]) == "a.dcm and 2 more"


@pytest.mark.parametrize(
    "arguments", [("no-such-file.dcm",), (), (".", "--lane", "fast"), (".", "--deadline", "0"), (".", "--no-wait", "--out", "x")]
)
def test_a_wrong_call_ends_with_2(secondread: Callable[..., Result], arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert secondread("submit", *(str(tmp_path) if each == "." else each for each in arguments)).exit_code == 2


def test_a_folder_without_dicom_ends_with_2_and_a_sentence(secondread: Callable[..., Result], tmp_path: Path) -> None:
    answered = secondread("submit", str(tmp_path))
    assert answered.exit_code == 2
    assert "None of the folders holds a DICOM file" in answered.stderr
