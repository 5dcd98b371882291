"""How patient a test is about what a promise bounds in seconds.

1 judges the promise itself. `SECONDREAD_TEST_PATIENCE=4` is for a machine that is slower than the one the promises are made for,
or busy with other things: there a late answer says nothing about us, and one that never comes still fails.
"""

import os
from typing import Final

PATIENCE: Final = float(os.environ.get("SECONDREAD_TEST_PATIENCE") or 1.0)
