"""Which model folder is meant. Torch stays out of here."""

from pathlib import Path

from pipeline.errors import SecondreadError
from pipeline.inference.card import newest, survey


class UnknownModel(SecondreadError):
    """A model was named that is not among the model folders, or whose folder was refused."""

    code = "unknown-model"
    title = "There is no such model"
    advice = "Name one of those, as `name:version`, or as `name` for its newest version."


def find_model(models_dir: Path, asked: str) -> Path:
    """The folder of a model by `name:version`, or of the newest version of a name.

    Raises
    ------
    UnknownModel
        There is none; the message lists what there is, and why a folder of that name was refused.
    BadModelFolder
        `models_dir` itself is no readable folder.
    """
    found = survey(models_dir)
    of_name = [card for card, _ in found.cards.values() if card.name == asked]
    reference = newest(of_name).reference if of_name else asked
    if reference in found.cards:
        return found.cards[reference][1]
    served = ", ".join(sorted(found.cards)) or "none"
    refused = f"; the folder {asked} was refused: {found.refused[asked]}" if asked in found.refused else ""
    raise UnknownModel(f"no model is called {asked}; served here: {served}{refused}", asked=asked, served=tuple(found.cards))
