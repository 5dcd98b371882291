from collections.abc import Callable

from pydantic import SecretStr
from typer.testing import Result

from workers.cli.flower import flower_arguments
from workers.settings import FlowerSettings


def test_flower_may_look_and_not_touch_behind_a_password_on_loopback() -> None:
    arguments = flower_arguments(FlowerSettings(password=SecretStr("pw")), "pw")
    assert {"--address=127.0.0.1", "--read_only=True", "--basic_auth=secondread:pw", "--max_tasks=5000"} <= set(arguments)
    assert any(each.startswith("--purge_offline_workers=") for each in arguments)


def test_without_queues_the_user_is_told_to_start_them(secondread: Callable[..., Result]) -> None:
    answered = secondread("flower")
    assert answered.exit_code == 1
    assert "`secondread up`" in answered.stderr
