"""What the ledger should hold: its operations on plain values, by the rules in words and not by its statements.

One model for two uses: `test_ledger_machine.py` proves that PostgreSQL and the model hold the same whatever happens, and the
simulation puts the product's policies on top of it.
"""

from tests.ledger_model.answers import AnswerRules
from tests.ledger_model.claims import ClaimRules
from tests.ledger_model.sweep import SweepRules


class Model(ClaimRules, AnswerRules, SweepRules):
    """All cases, keys and events."""

    __slots__ = ()
