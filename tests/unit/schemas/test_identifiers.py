"""Public ids, there and back."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.identifiers import Prefix, parse_public_id, public_id

PREFIXES: list[Prefix] = ["case", "evt", "whe", "key"]


@given(prefix=st.sampled_from(PREFIXES), value=st.uuids())
def test_an_id_comes_back_as_it_was(prefix: Prefix, value: UUID) -> None:
    assert parse_public_id(prefix, public_id(prefix, value)) == value


def test_an_id_says_what_it_names() -> None:
    assert public_id("case", UUID("0197c1d2-e3f4-a5b6-c7d8-e9f001122334")) == "case_0197c1d2e3f4a5b6c7d8e9f001122334"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "case",
        "case_",
        "case_1",
        "evt_0197c1d2e3f4a5b6c7d8e9f001122334",
        "0197c1d2e3f4a5b6c7d8e9f001122334",
        "case_0197c1d2-e3f4-a5b6-c7d8-e9f001122334",
        "case_0197c1d2e3f4a5b6c7d8e9f00112233",
        "case_0197c1d2e3f4a5b6c7d8e9f0011223344",
        "case_0197c1d2e3f4a5b6c7d8e9f00112233g",
        "case_case_0197c1d2e3f4a5b6c7d8e9f0011",
        "case_0197C1D2E3F4A5B6C7D8E9F001122334",
        "case_0197c1d2e3f4a5b6c7d8e9f00112233\u0664",
        "case_0197c1d2e3f4a5b6_7d8e9f001122334",
        "CASE_0197c1d2e3f4a5b6c7d8e9f001122334",
        "case_{0197c1d2e3f4a5b6c7d8e9f0011223}",
        "case_+197c1d2e3f4a5b6c7d8e9f001122334",
    ],
)
def test_what_is_not_one_of_ours_is_no_id(text: str) -> None:
    assert parse_public_id("case", text) is None


@given(text=st.text(max_size=60))
def test_no_text_breaks_the_reading(text: str) -> None:
    for prefix in PREFIXES:
        found = parse_public_id(prefix, text)
        assert found is None or public_id(prefix, found) == text
