"""Objects in a folder, in fsspec's memory file system, and in a source that clients may name but not leave."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import SourceUnavailable, UploadMissing
from pipeline.persistence.sources import NamedSource
from pipeline.persistence.uploads import ObjectPlace

CASE, OTHER = UUID(int=1), UUID(int=2)
KEY = f"{CASE.hex}/0000.dcm"


@pytest.fixture(params=["folder", "remote"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place on the disk, and one that is not."""
    if request.param == "folder":
        yield str(tmp_path / "uploads")
        return
    yield "memory://uploads"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def place(url: str) -> ObjectPlace:
    return ObjectPlace(url)


@pytest.fixture
def source(tmp_path: Path) -> NamedSource:
    """A source with one object, and a secret beside it."""
    (tmp_path / "archive" / "2026").mkdir(parents=True)
    (tmp_path / "archive" / "2026" / "us.dcm").write_bytes(b"DICM")
    (tmp_path / "archive-2").mkdir()
    (tmp_path / "archive-2" / "secret").write_bytes(b"secret")
    return NamedSource(str(tmp_path / "archive"))


@pytest.mark.parametrize("data", [b"", b"DICM", bytes(range(256)) * 5000])
def test_an_object_comes_back_as_it_was_written(place: ObjectPlace, data: bytes) -> None:
    place.write(KEY, data)

    assert place.read(KEY) == data
    assert place.find(KEY) == data


def test_an_object_is_found_by_another_process_with_the_same_url(place: ObjectPlace, url: str) -> None:
    place.write(f"{CASE.hex}/results/1/overlay.png", b"PNG")

    assert ObjectPlace(url).read(f"{CASE.hex}/results/1/overlay.png") == b"PNG"


def test_a_written_object_leaves_nothing_else_behind(tmp_path: Path) -> None:
    place = ObjectPlace(str(tmp_path))

    place.write(KEY, b"first")
    place.write(KEY, b"second")

    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [KEY]
    assert place.read(KEY) == b"second"


def test_a_remote_object_leaves_nothing_else_behind() -> None:
    files = fsspec.filesystem("memory")
    ObjectPlace("memory://uploads").write(KEY, b"DICM")

    assert files.find("/uploads") == [f"/uploads/{KEY}"]
    files.store.clear()


def test_of_writers_with_one_key_the_object_is_one_ones_whole(tmp_path: Path) -> None:
    place = ObjectPlace(str(tmp_path))
    versions = [bytes([number]) * 200_000 for number in range(16)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda data: place.write(KEY, data), versions))

    assert place.read(KEY) in versions
    assert [path.name for path in (tmp_path / CASE.hex).iterdir()] == ["0000.dcm"]


def test_what_is_not_there_is_missing(place: ObjectPlace) -> None:
    place.write(KEY, b"DICM")

    for key in (f"{CASE.hex}/0001.dcm", f"{OTHER.hex}/0000.dcm"):
        with pytest.raises(UploadMissing):
            place.read(key)
        assert place.find(key) is None


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    place = ObjectPlace(str(tmp_path))
    place.write(f"{CASE.hex}/results/1/overlay.png", b"PNG")

    for key in (f"{CASE.hex}/results", f"{CASE.hex}/results/1/overlay.png/x"):
        assert place.find(key) is None


NOT_OURS = [
    "",
    "0000.dcm",
    "../etc/passwd",
    f"{CASE.hex}/../{OTHER.hex}/0000.dcm",
    f"{CASE.hex}/a..b",
    f"/{KEY}",
    f"{CASE.hex}/",
    f"{CASE.hex}//etc/passwd",
    f"{CASE.hex.upper().replace('0', 'A')}/0000.dcm",
    f"{CASE}/0000.dcm",
    f"{CASE.hex}/Upper.dcm",
    f"{CASE.hex}/0000.dcm\n",
    f"{CASE.hex}/0000.dcm\0",
    f"{CASE.hex}/with space",
    f"file:///{KEY}",
    f"{CASE.hex}/{'a' * 200}",
]


@pytest.mark.parametrize("key", NOT_OURS)
def test_a_key_that_is_not_ours_is_neither_read_nor_written(place: ObjectPlace, key: str) -> None:
    with pytest.raises(UploadMissing):
        place.read(key)
    with pytest.raises(UploadMissing):
        place.write(key, b"x")


def test_removing_a_case_takes_all_of_it_and_nothing_else(place: ObjectPlace) -> None:
    kept = f"{OTHER.hex}/0000.dcm"
    for key in (KEY, f"{CASE.hex}/results/1/overlay.png", kept):
        place.write(key, b"x")

    place.remove_case(CASE)
    place.remove_case(CASE)

    assert [place.find(key) for key in (KEY, f"{CASE.hex}/results/1/overlay.png", kept)] == [None, None, b"x"]


def test_a_place_that_cannot_be_written_is_not_available(tmp_path: Path) -> None:
    # A file where the folder should be: no user may write below it, root neither.
    (tmp_path / "uploads").write_bytes(b"")

    with pytest.raises(SourceUnavailable) as refused:
        ObjectPlace(str(tmp_path / "uploads")).write(KEY, b"x")

    assert KEY not in str(refused.value) + str(refused.value.facts)


def test_a_source_gives_what_lies_below_it(source: NamedSource) -> None:
    assert source.read("2026/us.dcm") == b"DICM"
    assert source.read("./2026/us.dcm") == b"DICM"


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "2026",
        "2026/none.dcm",
        "2026/us.dcm/inside",
        "../archive-2/secret",
        "2026/../../archive-2/secret",
        "2026/../2026/us.dcm",
        "/etc/passwd",
        "//etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1/secret",
        "memory://secret",
        "simplecache::file:///etc/passwd",
        "..\\archive-2\\secret",
        "2026/us.dcm\0",
        "~/secret",
    ],
)
def test_a_source_gives_nothing_else(source: NamedSource, path: str) -> None:
    with pytest.raises(UploadMissing):
        source.read(path)


@pytest.mark.parametrize("target", ["archive-2/secret", "archive-2"])
def test_a_link_does_not_lead_out_of_a_source(source: NamedSource, tmp_path: Path, target: str) -> None:
    (tmp_path / "archive" / "link").symlink_to(tmp_path / target)

    for path in ("link", "link/secret"):
        with pytest.raises(UploadMissing):
            source.read(path)


def test_a_link_inside_a_source_is_followed(source: NamedSource, tmp_path: Path) -> None:
    (tmp_path / "archive" / "latest.dcm").symlink_to("2026/us.dcm")

    assert source.read("latest.dcm") == b"DICM"


def test_a_source_behind_a_link_is_a_source(source: NamedSource, tmp_path: Path) -> None:
    (tmp_path / "mounted").symlink_to(tmp_path / "archive")

    assert NamedSource(str(tmp_path / "mounted")).read("2026/us.dcm") == b"DICM"


def test_a_remote_source_is_left_no_more_than_a_folder_is() -> None:
    files = fsspec.filesystem("memory")
    files.pipe({"/archive/us.dcm": b"DICM", "/secret": b"secret"})
    source = NamedSource("memory://archive")

    assert source.read("us.dcm") == b"DICM"
    for path in ("../secret", "/secret", "memory://secret", "none.dcm"):
        with pytest.raises(UploadMissing):
            source.read(path)
    files.store.clear()


@given(path=st.lists(st.sampled_from(["..", ".", "", "archive-2", "secret", "2026", "/", "~", "\\"]), max_size=6).map("/".join))
def test_no_path_reaches_the_secret(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.getbasetemp() / "no-path-reaches"
    (root / "archive" / "2026").mkdir(parents=True, exist_ok=True)
    (root / "archive-2").mkdir(exist_ok=True)
    (root / "archive-2" / "secret").write_bytes(b"secret")

    with pytest.raises(UploadMissing):
        NamedSource(str(root / "archive")).read(path)
