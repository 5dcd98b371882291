"""Who our servers run as, and what that user can reach.

PostgreSQL refuses to run as root. Root's servers therefore run as `nobody`: `initdb` insists on an account that
exists, and this one exists on every system without our adding any. What we made for it is its own; no mode and no
owner of a folder that was there before is ever changed. Where the user cannot come, we go elsewhere instead.
"""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import SecondreadError

ACCOUNT = "nobody"

SHARED_HOMES = (Path("/var/lib/secondread"), Path(tempfile.gettempdir()) / "secondread-root")
"""Where root's servers go when the wanted folder lies behind closed doors (`/root` is one); the first that works."""

_OURS_ALONE = 0o700
_OTHERS_MAY_PASS = 0o711


class NoOrdinaryUser(SecondreadError):
    """We are root, and the system has no account to run the servers as."""

    code = "no-ordinary-user"
    title = "The embedded servers cannot run as root"
    advice = "Start secondread as an ordinary user, or add the account `nobody`."


class NoPlaceInReach(SecondreadError):
    """We are root, and there is no folder that the servers' user can come to."""

    code = "no-place-in-reach"
    title = "The embedded servers have no folder that their user can reach"
    advice = "Name a state folder whose parents everybody may pass, or start secondread as an ordinary user."


class FolderNotOurs(SecondreadError):
    """The folder belongs to another user: to write there could give the data away."""

    code = "folder-not-ours"
    title = "The folder belongs to another user"
    advice = "Start secondread as the user that owns the folder, or name another state folder."


@dataclass(frozen=True, slots=True)
class Identity:
    """The user and group that a server runs as."""

    uid: int
    gid: int


def server_identity() -> Identity | None:
    """Give the ordinary user for the servers; None where we are one ourselves.

    Raises
    ------
    NoOrdinaryUser
        We are root and the account is missing.
    """
    if os.geteuid() != 0:
        return None
    try:
        account = pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise NoOrdinaryUser(account=ACCOUNT) from None
    return Identity(account.pw_uid, account.pw_gid)


def can_reach(path: Path, identity: Identity) -> bool:
    """Whether this user can pass every folder down to `path`, and read it if it is a file."""
    steps = [step for step in (path, *path.parents) if step.exists()]
    passable = all(_allows(step, identity, os.X_OK) for step in steps if step.is_dir())
    return passable and (not path.is_file() or _allows(path, identity, os.R_OK))


def _allows(path: Path, identity: Identity, wanted: int) -> bool:
    facts = path.stat()
    shift = 6 if facts.st_uid == identity.uid else 3 if facts.st_gid == identity.gid else 0
    return bool((facts.st_mode >> shift) & wanted)


def folder_in_reach(wanted: Path, identity: Identity | None, homes: Sequence[Path] = SHARED_HOMES) -> Path:
    """Make the wanted folder, or, where the servers' user could not come to it, one that stands for it.

    The same wish always leads to the same place, so a restart finds its data.

    Raises
    ------
    FolderNotOurs
        It exists and belongs to another user.
    NoPlaceInReach
        None of the homes will do.
    """
    wanted = wanted.resolve()
    if identity is None or can_reach(wanted, identity):
        return _own_folder(wanted, identity)
    digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:8]
    return _own_folder(_home_in_reach(identity, homes) / f"{wanted.name}-{digest}", identity)


def programs_in_reach(
    root: Path, members: Sequence[str], *, key: str, identity: Identity | None, homes: Sequence[Path] = SHARED_HOMES
) -> Path:
    """Give `root`, or, where the user cannot use its members, a folder with a copy of them, made once for each key.

    Raises
    ------
    NoPlaceInReach
        A copy was needed, and none of the homes will do.
    """
    root = root.resolve()
    if identity is None or all(can_reach(step, identity) for member in members for step in _sample(root / member)):
        return root
    shelf = _own_folder(_home_in_reach(identity, homes) / "programs", identity)
    copy = shelf / key
    if not copy.exists():
        _copy_members(root, members, copy)
    return copy


def write_private(path: Path, text: str, identity: Identity | None = None) -> None:
    """Replace a file as a whole, for the eyes of one user: ours, or the servers'."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as sink:
        if identity is not None:
            os.fchown(sink.fileno(), identity.uid, identity.gid)
        sink.write(text)
        sink.flush()
        os.fsync(sink.fileno())
    Path(name).replace(path)


def give_folder(path: Path, identity: Identity | None) -> Path:
    """Make one folder for the server alone. Ours above it stays ours, so the server cannot swap our files."""
    if not path.is_dir():
        path.mkdir(mode=_OURS_ALONE)
        if identity is not None:
            os.chown(path, identity.uid, identity.gid)
    return path


def _own_folder(path: Path, identity: Identity | None) -> Path:
    mode = _OURS_ALONE if identity is None else _OTHERS_MAY_PASS
    for step in reversed((path, *path.parents)):
        if not step.exists():
            step.mkdir()
            step.chmod(mode)  # a strict umask would shut the servers' user out of a folder that is new and ours
    facts = path.lstat()
    if facts.st_uid != os.geteuid() or not stat.S_ISDIR(facts.st_mode):
        raise FolderNotOurs(folder=str(path), owner_uid=facts.st_uid)
    return path


def _home_in_reach(identity: Identity, homes: Sequence[Path]) -> Path:
    for home in homes:
        with contextlib.suppress(OSError, FolderNotOurs):
            if can_reach(_own_folder(home, identity), identity):
                return home
    raise NoPlaceInReach(tried=[str(home) for home in homes])


def _sample(member: Path) -> tuple[Path, ...]:
    # One file speaks for its folder: an installer writes them all under one umask.
    files = next((names for _, _, names in os.walk(member) if names), [])
    return (member, *(member / name for name in files[:1]))


def _copy_members(root: Path, members: Sequence[str], target: Path) -> None:
    building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    for member in members:
        source, copied = root / member, building / member
        copied.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copied)
        else:
            shutil.copy(source, copied)
    _open_for_reading(building)
    try:
        building.rename(target)
    except OSError:  # another process was first; its copy is as good
        shutil.rmtree(building)
        if not target.is_dir():
            raise


def _open_for_reading(tree: Path) -> None:
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
