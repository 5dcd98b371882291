"""One tree, four branches. The branch says what a worker does; the class says what happened.

`RejectedInput` fails the case (or the instance), `Unavailable` is tried again within the budget,
`OutOfTime` goes to compensation, `Superseded` drops the message. `code` is stable and public;
`advice` says what the reader can do. Facts are ids and numbers, never patient data.
"""

from typing import ClassVar


class SecondreadError(Exception):
    """The root: everything that we raise on purpose."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong inside secondread"
    advice: ClassVar[str] = "Retry; if it stays, give the operator the case id."

    def __init__(self, message: str = "", **facts: object) -> None:
        super().__init__(message or self.title)
        self.facts = facts


# What a worker does: fail the case. Sending the same bytes again cannot help.


class RejectedInput(SecondreadError):
    """The input cannot be read or used, however often it is tried."""

    code = "rejected"
    title = "The input cannot be used"
    advice = "Correct the input and submit a new case."


# What a worker does: put the case back; the sweeper rings again within the retry budget.


class Unavailable(SecondreadError):
    """Something we need is away or full; the case is not at fault."""

    code = "dependency-unavailable"
    title = "A service that secondread needs is not available"
    advice = "Wait; the case is kept and tried again."
    is_strike: ClassVar[bool] = False
    """The work crashed: after two of these the case is quarantined."""


class LedgerUnavailable(Unavailable):
    """PostgreSQL cannot be reached or refuses to work."""

    code = "ledger-unavailable"
    title = "The ledger is not available"


class QueueUnavailable(Unavailable):
    """Redis cannot be reached or refuses to work."""

    code = "queue-unavailable"
    title = "The queue is not available"


class SourceUnavailable(Unavailable):
    """The upload store or a configured source did not answer, or not in time."""

    code = "source-unavailable"
    title = "The place that holds the images did not answer"


class SourceBusy(Unavailable):
    """A source lets as many cases wait as may wait for it: this one is tried later, and no try is charged."""

    code = "source-busy"
    title = "The place that holds the images is busy with other cases"


class TensorStoreFull(Unavailable):
    """The tensor store is at its limit: the intake stops pulling until cases leave."""

    code = "tensor-store-full"
    title = "The tensor store is full"


class TensorMissing(Unavailable):
    """A handle's tensor is gone (expired or lost with its host): the case is prepared again."""

    code = "tensor-missing"
    title = "A stored tensor is gone"


class DecoderCrashed(Unavailable):
    """The decode child died with this input aboard. Counts as a strike; two strikes quarantine."""

    code = "decoder-crashed"
    title = "The decoder died while it read this input"
    is_strike = True


class StageCrashed(Unavailable):
    """A stage raised what is no error of ours: a mistake in it, or memory that ran out. Counts as a strike."""

    code = "stage-crashed"
    title = "A stage crashed on this case"
    is_strike = True


class ModelFailed(Unavailable):
    """The forward pass raised, or its output broke the card's promises."""

    code = "model-failed"
    title = "The model failed on this case"


# What a worker does: hand the case to compensation.


class OutOfTime(SecondreadError):
    """The deadline cannot be met any more."""

    code = "deadline-passed"
    title = "The deadline passed before the work was done"
    advice = "The case goes on in the compensation queue; wait for its callback."


class SourceTimeout(OutOfTime):
    """A source or the upload store did not give the images within the time that fetching has."""

    code = "source-timeout"
    title = "The place that holds the images did not give them in time"


class ExpiredAtStage(OutOfTime):
    """Less time is left than the stage and those after it need: the work is not begun."""

    code = "expired-at-stage"
    title = "Too little time was left to begin"


# What a worker does: drop its copy. Somebody else owns the case now.


class Superseded(SecondreadError):
    """This message, claim or completion was overtaken."""

    code = "superseded"
    title = "Another worker has taken this over"


class CaseMoved(Superseded):
    """The case has left the state that the caller expected."""

    code = "case-moved"


class StaleCompletion(Superseded):
    """A worker finished after its claim had passed to another: its result is refused."""

    code = "stale-completion"


class IdentityMismatch(RejectedInput):
    """A tensor's digest or case id is not the one its handle names: withheld, and paged for."""

    code = "identity-mismatch"
    title = "Stored data does not belong to this case"
    advice = "The case was quarantined; the operator was alerted. Submit it again."


class Quarantined(RejectedInput):
    """The case has cost too many attempts or strikes."""

    code = "quarantined"
    title = "The case failed repeatedly and was set aside"
    advice = "Give the operator the case id; the input is kept for analysis."


class UploadMissing(RejectedInput):
    """An uploaded or referenced object is not there."""

    code = "instance-not-found"
    title = "A named instance is not in its store or source"
    advice = "Check the key, or submit the instance again."
