import re

import pytest

from pipeline.dicom.errors import REFUSALS
from pipeline.errors import RejectedInput


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_every_refusal_has_a_code_in_kebab_case_and_words_of_its_own(refusal: type[RejectedInput]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", refusal.code)
    assert refusal.title != RejectedInput.title
    assert refusal.advice != RejectedInput.advice


def test_no_two_refusals_share_a_code() -> None:
    assert len(REFUSALS) == len(set(REFUSALS.values())) == 17
