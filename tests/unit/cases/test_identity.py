"""Whether a row's work is the case's own: every link of the chain, broken one at a time."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from pipeline.cases.identity import handles_of, require_own
from pipeline.errors import IdentityMismatch
from schemas.tensor import TensorHandle
from schemas.work import CaseInput, CaseWork, InferredCase, PreparedCase, PreparedInstance, ReceivedInstance

CASE, OTHER = UUID(int=1), UUID(int=2)
DIGESTS = ("1" * 64, "2" * 64)
RECEIVED = CaseInput(instances=tuple(ReceivedInstance(key=digest, digest=digest) for digest in DIGESTS))


def handle(digest: str, *, case_id: UUID = CASE, generation: int = 1) -> TensorHandle:
    return TensorHandle(
        store="memory",
        key=digest[:32],
        shape=(1, 1, 8, 8),
        dtype="uint8",
        digest=digest,
        case_id=case_id,
        generation=generation,
        expires_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


PREPARED = PreparedCase(
    model="m:1",
    case_id=CASE,
    instances=(PreparedInstance(digest=DIGESTS[0], stored=handle("a" * 64)), PreparedInstance(digest=DIGESTS[1], failure="truncated")),
    images=(),
    model_input=handle("b" * 64),
)
INFERRED = InferredCase(
    model="m:1",
    weights_digest="0" * 64,
    probability=handle("c" * 64, generation=2),
    scores=((0.5, 0.5),),
    model_input_digest="b" * 64,
    batch_id="batch",
    batch_size=1,
    batch_position=0,
    fired_because="full",
    device="cpu",
    forward_s=0.1,
)
WORK = CaseWork(prepared=PREPARED, inferred=INFERRED)


def prepared(**changes: object) -> CaseWork:
    return WORK.model_copy(update={"prepared": PREPARED.model_copy(update=changes)})


def inferred(**changes: object) -> CaseWork:
    return WORK.model_copy(update={"inferred": INFERRED.model_copy(update=changes)})


def stored(handle: TensorHandle) -> CaseWork:
    first, second = PREPARED.instances
    return prepared(instances=(first.model_copy(update={"stored": handle}), second))


@pytest.mark.parametrize(
    "work",
    [
        CaseWork(),
        CaseWork(prepared=PREPARED),
        WORK,
        prepared(case_id=None),
        inferred(model_input_digest=None),
        CaseWork(prepared=PREPARED.model_copy(update={"model_input": None})),
    ],
    ids=["nothing", "prepared", "read", "prepared by an older version", "read by an older version", "nothing for the model"],
)
def test_a_cases_own_work_passes(work: CaseWork) -> None:
    require_own(work, case_id=CASE, received=RECEIVED)


def test_an_instance_that_was_sent_twice_counts_once() -> None:
    twice = CaseInput(instances=(*RECEIVED.instances, RECEIVED.instances[0]))
    require_own(WORK, case_id=CASE, received=twice)


def test_what_a_source_holds_has_no_digest_to_compare_with() -> None:
    require_own(WORK, case_id=CASE, received=CaseInput(source="pacs", instances=(ReceivedInstance(key="a/b.dcm"),)))


@pytest.mark.parametrize(
    ("work", "differs"),
    [
        (prepared(case_id=OTHER), "case_id"),
        (prepared(model_input=handle("b" * 64, case_id=OTHER)), "case_id"),
        (stored(handle("a" * 64, case_id=OTHER)), "case_id"),
        (inferred(probability=handle("c" * 64, case_id=OTHER)), "case_id"),
        (prepared(instances=PREPARED.instances[:1]), "instances"),
        (prepared(instances=PREPARED.instances[::-1]), "instances"),
        (prepared(instances=()), "instances"),
        (prepared(model_input=handle("b" * 64, generation=0)), "generation"),
        (stored(handle("a" * 64, generation=2)), "generation"),
        (inferred(model_input_digest="e" * 64), "model_input"),
        (prepared(model_input=handle("e" * 64)), "model_input"),
        (prepared(model_input=None), "model_input"),
    ],
)
def test_a_broken_link_withholds_the_case(work: CaseWork, differs: str) -> None:
    with pytest.raises(IdentityMismatch) as refused:
        require_own(work, case_id=CASE, received=RECEIVED)

    assert refused.value.facts["differs"] == differs


def test_every_tensor_of_a_row_is_named_once() -> None:
    assert [each.digest[0] for each in handles_of(WORK)] == ["b", "a", "c"]
    assert list(handles_of(CaseWork())) == []
