"""What only files can do: outlive their readers and writers, be damaged, and share a folder with others."""

import os
import signal
import stat
import struct
import subprocess
import sys
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from pipeline.deadline import utc_now
from pipeline.errors import IdentityMismatch, TensorStoreFull
from pipeline.tensors.shared_memory import SharedMemoryStore
from schemas.tensor import TensorHandle

ROOT = Path(__file__).resolve().parents[3]
CASE = UUID("01970000-0000-7000-8000-000000000001")
IMAGE = np.arange(64 * 64, dtype=np.uint16).reshape(1, 64, 64)
MEBIBYTE = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tensors"


@pytest.fixture
def store(folder: Path) -> SharedMemoryStore:
    return SharedMemoryStore(folder, capacity_bytes=64 * MEBIBYTE)


def put(store: SharedMemoryStore, expires_at: datetime) -> TensorHandle:
    return store.put(IMAGE, case_id=CASE, generation=1, expires_at=expires_at)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def python(program: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_the_folder_belongs_to_its_user_alone(store: SharedMemoryStore, folder: Path, noon: datetime) -> None:
    handle = put(store, noon)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / handle.key).stat().st_mode) == 0o600


def test_a_folder_that_others_could_enter_is_closed(folder: Path) -> None:
    folder.mkdir(mode=0o755)

    SharedMemoryStore(folder, capacity_bytes=MEBIBYTE)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_in_the_folder_s_place_is_refused(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)

    with pytest.raises(PermissionError):
        SharedMemoryStore(folder, capacity_bytes=MEBIBYTE)


def test_a_folder_that_somebody_tidied_away_is_made_again(store: SharedMemoryStore, folder: Path, noon: datetime) -> None:
    folder.rmdir()
    assert store.reclaim(now=noon) == 0
    handle = put(store, noon + timedelta(minutes=1))
    np.testing.assert_array_equal(store.get(handle, case_id=CASE), IMAGE)


def test_a_file_name_tells_nothing_about_the_case(store: SharedMemoryStore, folder: Path, noon: datetime) -> None:
    put(store, noon)

    (name,) = names_in(folder)
    assert len(name) == 32
    assert CASE.hex not in name


def test_the_header_says_whose_values_follow_on_a_cache_line(store: SharedMemoryStore, folder: Path, noon: datetime) -> None:
    handle = put(store, noon)

    content = (folder / handle.key).read_bytes()

    # Magic, version, four bytes of padding, case id, generation, length, digest: 80 bytes of 128.
    expected = b"2READTNS" + struct.pack("<I", 1) + bytes(4) + CASE.bytes + struct.pack("<QQ", 1, IMAGE.nbytes)
    assert content[:80] == expected + sha256(IMAGE.tobytes()).digest()
    assert content[128:] == IMAGE.tobytes()


@pytest.mark.parametrize("at_byte", [0, 8, 16, 32, 40, 48, 128, 128 + IMAGE.nbytes - 1])
def test_one_altered_byte_withholds_the_tensor(store: SharedMemoryStore, folder: Path, noon: datetime, at_byte: int) -> None:
    handle = put(store, noon)
    with (folder / handle.key).open("r+b") as file:
        file.seek(at_byte)
        byte = file.read(1)[0]
        file.seek(at_byte)
        file.write(bytes([byte ^ 1]))

    with pytest.raises(IdentityMismatch):
        store.get(handle, case_id=CASE)


@pytest.mark.parametrize("size_bytes", [0, 127, 128, 128 + IMAGE.nbytes - 1, 128 + IMAGE.nbytes + 1])
def test_a_file_of_another_size_is_withheld(store: SharedMemoryStore, folder: Path, noon: datetime, size_bytes: int) -> None:
    handle = put(store, noon)
    os.truncate(folder / handle.key, size_bytes)

    with pytest.raises(IdentityMismatch):
        store.get(handle, case_id=CASE)


@pytest.mark.parametrize("size_bytes", [0, 79])
def test_a_file_without_a_header_is_left_to_its_expiry(store: SharedMemoryStore, folder: Path, noon: datetime, size_bytes: int) -> None:
    handle = put(store, noon)
    os.truncate(folder / handle.key, size_bytes)
    os.utime(folder / handle.key, (noon.timestamp(),) * 2)

    store.free(handle)

    assert names_in(folder) == [handle.key]
    assert store.reclaim(now=noon) == 1


def test_a_tensor_survives_the_process_that_read_it(store: SharedMemoryStore, folder: Path, noon: datetime) -> None:
    handle = put(store, noon)
    reader = python(
        "import sys\n"
        "from pathlib import Path\n"
        "from pipeline.tensors.shared_memory import SharedMemoryStore\n"
        "from schemas.tensor import TensorHandle\n"
        "handle = TensorHandle.model_validate_json(sys.argv[2])\n"
        "print(SharedMemoryStore(Path(sys.argv[1]), capacity_bytes=1).get(handle, case_id=handle.case_id).sum())\n",
        folder,
        handle.model_dump_json(),
    )

    printed, _ = reader.communicate(timeout=60)

    assert int(printed) == 4096 * 4095 // 2
    np.testing.assert_array_equal(store.get(handle, case_id=CASE), IMAGE)


def test_a_killed_writer_leaves_no_torn_tensor(folder: Path) -> None:
    writer = python(
        "import sys\n"
        "from datetime import UTC, datetime\n"
        "from pathlib import Path\n"
        "from uuid import uuid4\n"
        "import numpy as np\n"
        "from pipeline.tensors.shared_memory import SharedMemoryStore\n"
        "store = SharedMemoryStore(Path(sys.argv[1]), capacity_bytes=1 << 30)\n"
        "values = np.ones(1 << 20, dtype=np.uint8)\n"
        "for generation in range(200):\n"
        "    handle = store.put(values, case_id=uuid4(), generation=generation, expires_at=datetime.now(UTC))\n"
        "    print(handle.key, flush=True)\n",
        folder,
    )
    with writer:
        assert writer.stdout is not None
        for _ in range(3):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)

    finished = [path for path in folder.iterdir() if len(path.name) == 32]
    assert len(finished) >= 3
    for path in finished:
        content = path.read_bytes()
        assert content[128:] == b"\x01" * (1 << 20)
        assert content[48:80] == sha256(content[128:]).digest()


def test_what_a_dead_writer_left_is_reclaimed_after_a_quarter_of_a_minute(store: SharedMemoryStore, folder: Path, noon: datetime) -> None:
    for name, age_s in [("a" * 32 + ".part", 16), ("b" * 32 + ".part", 14)]:
        (folder / name).write_bytes(b"unfinished")
        os.utime(folder / name, ((noon - timedelta(seconds=age_s)).timestamp(),) * 2)

    removed_count = store.reclaim(now=noon)

    assert removed_count == 1
    assert names_in(folder) == ["b" * 32 + ".part"]


def test_a_writer_that_died_just_before_the_renaming_leaves_nothing_for_longer(store: SharedMemoryStore, folder: Path) -> None:
    """given an unfinished file that bears its expiry already, then its age counts all the same"""
    handle = put(store, utc_now() + timedelta(minutes=15))
    (folder / handle.key).rename(folder / f"{handle.key}.part")

    removed = [store.reclaim(now=utc_now() + timedelta(seconds=age_s)) for age_s in (5, 16)]

    assert removed == [0, 1]


def test_files_that_are_not_ours_are_neither_counted_nor_removed(
    store: SharedMemoryStore, folder: Path, tmp_path: Path, noon: datetime
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    (folder / "notes.txt").write_bytes(b"precious")
    (folder / ("A" * 32)).write_bytes(b"precious")
    (folder / ("c" * 32)).symlink_to(outside)
    (folder / ("d" * 32)).mkdir()
    before = names_in(folder)

    removed_count = store.reclaim(now=noon + timedelta(days=36_500))

    assert (removed_count, store.used_bytes()) == (0, 0)
    assert names_in(folder) == before
    assert outside.exists()


def test_processes_share_one_limit(folder: Path, noon: datetime) -> None:
    mine = SharedMemoryStore(folder, capacity_bytes=MEBIBYTE)
    other = SharedMemoryStore(folder, capacity_bytes=MEBIBYTE)
    most = np.zeros(900_000, dtype=np.uint8)
    other.put(most, case_id=CASE, generation=1, expires_at=noon)

    with pytest.raises(TensorStoreFull):
        mine.put(most, case_id=CASE, generation=1, expires_at=noon)


def test_a_folder_without_room_is_a_full_store_and_keeps_no_piece(folder: Path) -> None:
    # The kernel refuses the file's size as it would refuse it where the file system ends.
    writer = python(
        "import resource, sys\n"
        "from datetime import UTC, datetime\n"
        "from pathlib import Path\n"
        "from uuid import uuid4\n"
        "import numpy as np\n"
        "from pipeline.errors import TensorStoreFull\n"
        "from pipeline.tensors.shared_memory import SharedMemoryStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "store = SharedMemoryStore(Path(sys.argv[1]), capacity_bytes=1 << 30)\n"
        "try:\n"
        "    store.put(np.ones(8192, dtype=np.uint8), case_id=uuid4(), generation=1, expires_at=datetime.now(UTC))\n"
        "except TensorStoreFull as full:\n"
        "    print(full.code)\n",
        folder,
    )

    printed, _ = writer.communicate(timeout=60)

    assert printed.strip() == "tensor-store-full"
    assert names_in(folder) == []
