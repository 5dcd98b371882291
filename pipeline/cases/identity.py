"""Whether what earlier pools left in a case's row is that case's own: the digest chain, link by link.

The stores check bytes against handles; here the handles and digests of one row are checked against the case and against
each other. It costs a few comparisons, and every pool does it before it works.
"""

from collections.abc import Iterator
from uuid import UUID

from pipeline.errors import IdentityMismatch
from schemas.tensor import TensorHandle
from schemas.work import CaseInput, CaseWork, PreparedCase


def require_own(work: CaseWork, *, case_id: UUID, received: CaseInput) -> None:
    """Compare a case's work with the case: what was received, what was prepared of it, what the model was shown.

    Raises
    ------
    IdentityMismatch
        A part is another case's, or of another claim than its neighbours; its fact `differs` says which.
    """
    prepared = work.prepared
    differs = prepared and (_foreign_part(prepared, case_id, received) or _foreign_answer(work, prepared, case_id))
    if differs:
        raise IdentityMismatch("the case's row holds work that is not its own", case_id=case_id, differs=differs)


def handles_of(work: CaseWork) -> Iterator[TensorHandle]:
    """Every tensor that a case's row names."""
    if work.prepared:
        yield from _prepared_handles(work.prepared)
    if work.inferred:
        yield work.inferred.probability


def _prepared_handles(prepared: PreparedCase) -> Iterator[TensorHandle]:
    for handle in (prepared.model_input, *(instance.stored for instance in prepared.instances)):
        if handle is not None:
            yield handle


def _foreign_part(prepared: PreparedCase, case_id: UUID, received: CaseInput) -> str | None:
    # None: an older version wrote the row.
    if prepared.case_id not in (None, case_id) or any(handle.case_id != case_id for handle in _prepared_handles(prepared)):
        return "case_id"
    digests = [instance.digest for instance in received.instances]
    # A repeated instance counts once, as fetch counts it. What a source holds has no digest before it is fetched.
    if all(digests) and list(dict.fromkeys(digests)) != [instance.digest for instance in prepared.instances]:
        return "instances"
    if len({handle.generation for handle in _prepared_handles(prepared)}) > 1:
        return "generation"
    return None


def _foreign_answer(work: CaseWork, prepared: PreparedCase, case_id: UUID) -> str | None:
    inferred = work.inferred
    if inferred is None:
        return None
    if inferred.probability.case_id != case_id:
        return "case_id"
    shown = prepared.model_input.digest if prepared.model_input else None
    if inferred.model_input_digest not in (None, shown):
        return "model_input"
    return None
