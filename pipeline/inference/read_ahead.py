"""What was read of the next batch while one ran: copies, which make nobody the owner of a case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.inference.runner import ModelRunner
from pipeline.inference.transfer import Staged, UInt8Array
from schemas.tensor import TensorHandle


@dataclass(slots=True)
class ReadAhead:
    """Tensors under the handles that named them; whoever claims a case with such a handle need not read again.

    A handle names store key, case, generation and digest, and the store has checked all of them as it was read: what is found
    here under a claimed case's own handle is what the store would give.
    """

    values: Mapping[TensorHandle, UInt8Array] = field(default_factory=dict)
    runner: ModelRunner | None = None
    staged: Staged | None = None
    """All of `values` in their order, on the way to the runner's device."""

    def take_staged(self, handles: Sequence[TensorHandle | None], *, runner: ModelRunner) -> Staged | None:
        """The staged batch, once, if it is exactly the one that is wanted, by the runner that is to answer it; else it is let go."""
        if self.runner is not runner or list(self.values) != list(handles):
            self.let_go()
        staged, self.staged = self.staged, None
        return staged

    def let_go(self) -> None:
        """Drop what was not wanted."""
        staged, self.staged = self.staged, None
        if staged is not None and self.runner is not None:
            self.runner.discard(staged)
