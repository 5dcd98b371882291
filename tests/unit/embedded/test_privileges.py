"""Which user the servers run as, and what is done where that user cannot come."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from workers.embedded.privileges import (
    FolderNotOurs,
    Identity,
    NoPlaceInReach,
    can_reach,
    folder_in_reach,
    programs_in_reach,
    server_identity,
    write_private,
)

STRANGER = Identity(uid=54_321, gid=54_321)


@pytest.fixture
def closed_folder(open_folder: Path) -> Path:
    """A folder for us alone, as `/root` is."""
    folder = open_folder / "closed"
    folder.mkdir(mode=0o700)
    return folder


def modes(top: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode and owner of all that there is."""
    return {path: (path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in (top, *top.rglob("*"))}


def test_only_root_needs_another_user_for_its_servers() -> None:
    assert (server_identity() is not None) == (os.geteuid() == 0)


def test_root_servers_run_as_a_user_without_rights() -> None:
    identity = server_identity()
    assert identity is None or identity.uid != 0


def test_a_folder_below_a_closed_one_cannot_be_reached(closed_folder: Path) -> None:
    (closed_folder / "inner").mkdir(mode=0o755)
    assert not can_reach(closed_folder / "inner", STRANGER)


def test_a_folder_that_is_not_there_is_as_near_as_its_parent(open_folder: Path, closed_folder: Path) -> None:
    assert (can_reach(open_folder / "new", STRANGER), can_reach(closed_folder / "new", STRANGER)) == (True, False)


def test_a_wanted_folder_in_reach_is_the_one_that_is_made(open_folder: Path) -> None:
    assert folder_in_reach(open_folder / "state", STRANGER, homes=()) == (open_folder / "state").resolve()


def test_an_ordinary_user_gets_the_wanted_folder_for_itself_alone(closed_folder: Path) -> None:
    folder = folder_in_reach(closed_folder / "state", None, homes=())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_out_of_reach_is_replaced_by_one_in_reach(open_folder: Path, closed_folder: Path) -> None:
    folder = folder_in_reach(closed_folder / "state", STRANGER, homes=[open_folder / "home"])
    assert can_reach(folder, STRANGER)


def test_the_same_wish_leads_to_the_same_place_and_another_wish_to_another(open_folder: Path, closed_folder: Path) -> None:
    wishes = [closed_folder / "state", closed_folder / "state", closed_folder / "other" / "state"]
    first, again, other = (folder_in_reach(wish, STRANGER, homes=[open_folder / "home"]) for wish in wishes)
    assert (first == again, first == other) == (True, False)


def test_a_strict_umask_does_not_shut_the_servers_out(open_folder: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = folder_in_reach(open_folder / "a" / "b", STRANGER, homes=())
    finally:
        os.umask(before)
    assert can_reach(folder, STRANGER)


def test_no_mode_and_no_owner_of_what_was_there_is_changed(open_folder: Path, closed_folder: Path) -> None:
    before = modes(open_folder)
    folder_in_reach(closed_folder / "state", STRANGER, homes=[open_folder / "home"])
    after = modes(open_folder)
    assert {path: after[path] for path in before} == before


def test_a_home_that_is_shut_is_passed_over(open_folder: Path, closed_folder: Path) -> None:
    folder = folder_in_reach(closed_folder / "state", STRANGER, homes=[closed_folder, open_folder / "second"])
    assert folder.parent == open_folder / "second"


def test_without_a_home_in_reach_it_says_which_were_tried(closed_folder: Path) -> None:
    with pytest.raises(NoPlaceInReach) as caught:
        folder_in_reach(closed_folder / "state", STRANGER, homes=[closed_folder])
    assert caught.value.facts["tried"] == [str(closed_folder)]


def test_a_link_laid_where_our_home_should_be_is_not_followed(open_folder: Path, closed_folder: Path) -> None:
    (open_folder / "elsewhere").mkdir()
    (open_folder / "home").symlink_to(open_folder / "elsewhere")
    with pytest.raises(NoPlaceInReach):
        folder_in_reach(closed_folder / "state", STRANGER, homes=[open_folder / "home"])


def test_a_folder_of_another_user_is_refused() -> None:
    theirs = Path("/proc/1") if os.geteuid() else Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(theirs, STRANGER.uid, STRANGER.gid)
    with pytest.raises(FolderNotOurs):
        folder_in_reach(theirs, None)
    if os.geteuid() == 0:
        theirs.rmdir()


@pytest.fixture
def site(closed_folder: Path) -> Path:
    """A folder of installed packages with one program and its library."""
    (closed_folder / "pkg" / "lib").mkdir(parents=True)
    (closed_folder / "pkg" / "lib" / "data.txt").write_text("data")
    (closed_folder / "pkg" / "run").write_text("#!/bin/sh\n")
    (closed_folder / "pkg" / "run").chmod(0o700)
    return closed_folder


def test_programs_out_of_reach_are_copied_where_they_can_be_run(open_folder: Path, site: Path) -> None:
    root = programs_in_reach(site, ["pkg/run", "pkg/lib"], key="pkg-1", identity=STRANGER, homes=[open_folder / "home"])
    assert can_reach(root / "pkg/lib/data.txt", STRANGER)
    assert stat.S_IMODE((root / "pkg/run").stat().st_mode) == 0o755


def test_a_copy_is_made_once_for_each_version(open_folder: Path, site: Path) -> None:
    homes = [open_folder / "home"]
    first, again, newer = (programs_in_reach(site, ["pkg/run"], key=key, identity=STRANGER, homes=homes) for key in ("1", "1", "2"))
    assert (first == again, first == newer) == (True, False)


def test_programs_are_used_where_they_are_by_an_ordinary_user(site: Path) -> None:
    assert programs_in_reach(site, ["pkg/run"], key="pkg-1", identity=None, homes=()) == site.resolve()


def test_a_private_file_is_never_seen_by_others_nor_half_written(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", "first")
    write_private(tmp_path / "secret", "second")
    assert (tmp_path / "secret").read_text() == "second"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
