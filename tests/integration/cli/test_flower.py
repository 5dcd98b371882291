import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from workers.embedded.ports import free_port, listening

pytestmark = pytest.mark.services


class Running(Protocol):
    state_dir: Path


def test_flower_shows_the_workers_to_who_has_the_password_and_lets_nobody_touch(running: Running) -> None:
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "SECONDREAD_STATE_DIR": str(running.state_dir),
        "SECONDREAD_FLOWER_PORT": str(port),
        "SECONDREAD_FLOWER_PASSWORD": "only-for-this-test",
    }
    with subprocess.Popen([sys.executable, "-m", "workers.cli.main", "flower"], env=environment, stderr=subprocess.PIPE) as process:
        try:
            is_up = listening(port)
            while not is_up():
                assert process.poll() is None
            url, password = f"http://127.0.0.1:{port}", ("secondread", "only-for-this-test")
            with httpx.Client(base_url=url, trust_env=False, timeout=10) as browser:
                assert browser.get("/api/workers").status_code == 401
                assert browser.get("/api/workers", auth=password).status_code == 200
                assert browser.post("/api/worker/shutdown/any", auth=password).status_code == 403
        finally:
            process.terminate()
        assert process.stderr is not None
        assert b"only-for-this-test" not in process.stderr.read()
