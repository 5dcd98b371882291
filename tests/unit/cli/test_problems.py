from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from workers.gateway.problems import REFUSALS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "problems.md"


def test_the_page_is_what_the_command_prints(secondread: Callable[..., Result]) -> None:
    assert secondread("problems", "--markdown").stdout == PAGE.read_text(), "run: secondread problems --markdown > docs/problems.md"


def test_every_refusal_says_what_to_do(secondread: Callable[..., Result]) -> None:
    page = PAGE.read_text()
    for code, refusal in REFUSALS.items():
        assert f"| `{code}` | {refusal.status} |" in page
        assert refusal.title
        assert refusal.advice


def test_one_code_is_explained_alone(secondread: Callable[..., Result]) -> None:
    shown = secondread("problems", "truncated-pixels")
    assert shown.exit_code == 0
    assert "truncated-pixels" in shown.stdout
    assert "idempotency" not in shown.stdout


def test_an_unknown_code_is_said_to_be_unknown(secondread: Callable[..., Result]) -> None:
    assert secondread("problems", "no-such-code").exit_code == 1
