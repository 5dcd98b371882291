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
from pipeline.persistence.uploads import ObjectPlace, is_of_case, pictures_key, received_key

# Two of one folder, and one of another.
CASE, NEIGHBOUR, OTHER = UUID(int=1), UUID(int=2), UUID(int=1 << 127)
KEY, PICTURES = received_key(CASE, 0), pictures_key(CASE, 3)
FOLDER, STEM = KEY.split("/")[0], f"{KEY.split('/')[0]}/{CASE.hex}"


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
    place.write(PICTURES, b"ZIP")

    assert ObjectPlace(url).read(PICTURES) == b"ZIP"


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
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / FOLDER).iterdir()] == [KEY]


def test_what_is_not_there_is_missing(place: ObjectPlace) -> None:
    place.write(KEY, b"DICM")

    for key in (received_key(CASE, 1), received_key(NEIGHBOUR, 0), received_key(OTHER, 0)):
        with pytest.raises(UploadMissing):
            place.read(key)
        assert place.find(key) is None


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir(parents=True)

    assert ObjectPlace(str(tmp_path)).find(KEY) is None


NOT_OURS = [
    "",
    "0000.dcm",
    "../etc/passwd",
    f"{FOLDER}/../{KEY}",
    f"{STEM}-a..b",
    f"{STEM}-../x",
    f"/{KEY}",
    STEM,
    f"{STEM}-",
    f"{STEM}/0000.dcm",
    f"{STEM}-a/b",
    f"{STEM}//etc/passwd",
    f"{FOLDER}/{CASE.hex.upper().replace('0', 'A')}-0000.dcm",
    f"{FOLDER}/{CASE}-0000.dcm",
    f"{FOLDER}/{OTHER.hex}-0000.dcm",
    f"{OTHER.hex[:7]}/{CASE.hex}-0000.dcm",
    f"{STEM}-Upper.dcm",
    f"{STEM}-0000.dcm\n",
    f"{STEM}-0000.dcm\0",
    f"{STEM}-with space",
    f"file:///{KEY}",
    f"{STEM}-{'a' * 200}",
]


@pytest.mark.parametrize("key", NOT_OURS)
def test_a_key_that_is_not_ours_is_neither_read_nor_written(place: ObjectPlace, key: str) -> None:
    with pytest.raises(UploadMissing):
        place.read(key)
    with pytest.raises(UploadMissing):
        place.write(key, b"x")


def test_removing_a_case_takes_all_of_it_and_nothing_else(place: ObjectPlace) -> None:
    kept = [received_key(NEIGHBOUR, 0), received_key(OTHER, 0)]
    for key in (KEY, PICTURES, *kept):
        place.write(key, b"x")

    place.remove_case(CASE)
    place.remove_case(CASE)

    assert [place.find(key) for key in (KEY, PICTURES, *kept)] == [None, None, b"x", b"x"]


def test_a_case_that_was_never_kept_is_removed_all_the_same(place: ObjectPlace) -> None:
    place.remove_case(OTHER)


def test_a_key_is_its_own_cases_alone() -> None:
    assert is_of_case(KEY, CASE)
    assert is_of_case(PICTURES, CASE)
    assert not is_of_case(KEY, NEIGHBOUR)
    assert not is_of_case(KEY, OTHER)


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
