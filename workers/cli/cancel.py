"""`secondread cancel`: end a case that needs no answer any more."""

from typing import Annotated

import typer

from workers.cli.door import KeyOption, UrlOption, at_the_door
from workers.cli.terminal import results


def cancel(case_id: Annotated[str, typer.Argument(metavar="ID")], *, url: UrlOption = None, key: KeyOption = None) -> None:
    """End a case that needs no answer any more; a case that has ended otherwise is an error."""
    with at_the_door(url, key) as client:
        case = client.cancel(case_id)
    results().print(f"{case.case_id} is {case.status}.")
