"""Versions of a model come and go under load: every case is answered by one version, and a bad one never gets so far."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.acceptance.crowd import assert_each_ended_once, flowing
from tests.acceptance.running import Deployment, eventually, running_deployment
from tests.acceptance.versions import (
    NAME,
    NEW,
    OLD,
    REFUSALS,
    SIDE_PX,
    acted,
    answered_by,
    log_of,
    models,
    reported,
    write_bad_versions,
    write_version,
)
from workers.model_keeper import LINGER_S

pytestmark = pytest.mark.services

GONE_WITHIN_S = 4 * LINGER_S + 60.0
SHARE, CANARY_CASES = 0.3, 120
BEFORE, AFTER = 20, 60
SHADOWED = 3
SHORTLY_S = 90.0


def all_by(version: str, count: int) -> dict[tuple[str, str, str], int]:
    reference = f"{NAME}:{version}"
    return {(reference, reference, version): count}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment whose newest three versions are bad, and whose fourth newest is good."""
    models_dir = tmp_path_factory.mktemp("models")
    write_bad_versions(models_dir)
    write_version(models_dir, 2)
    write_version(models_dir, 1)
    with running_deployment(SECONDREAD_MODELS_DIR=str(models_dir)) as running:
        yield running


@pytest.fixture
def serving_new(house: Deployment, small_studies: Sequence[bytes]) -> Deployment:
    """The house, with the newer good version serving alone."""
    acted(house, "switch", NAME, NEW)
    assert is_taken_up(house, small_studies, NEW)
    return house


def is_taken_up(house: Deployment, studies: Sequence[bytes], version: str) -> bool:
    """Wait until intake, which remembers a plan for a second, has this version answer a case."""

    def answers() -> bool:
        return answered_by(house, [house.door.answered(studies[0])["case_id"]]) == all_by(version, 1)

    return eventually(answers, within_s=SHORTLY_S)


def read_some(house: Deployment, studies: Sequence[bytes], count: int) -> list[str]:
    with flowing(house, studies) as case_ids:
        assert eventually(lambda: len(case_ids) >= count, within_s=SHORTLY_S)
    return case_ids


def test_bad_versions_are_refused_by_name_at_the_start_and_the_newest_good_one_serves(
    house: Deployment, small_studies: Sequence[bytes]
) -> None:
    listed = acted(house, "list")
    assert "serves" in next(line for line in listed.splitlines() if NEW in line)
    for version, code in REFUSALS.items():
        assert (reported(house, version), code in listed.replace("\n", "")) == ("refused", True), listed
    case_ids = read_some(house, small_studies, 1)
    assert answered_by(house, case_ids) == all_by(NEW, len(case_ids))


def test_a_switch_under_load_fails_no_case_and_the_old_version_finishes_its_line_and_goes(
    serving_new: Deployment, small_studies: Sequence[bytes]
) -> None:
    house = serving_new
    with flowing(house, small_studies) as case_ids:
        assert eventually(lambda: len(case_ids) >= BEFORE, within_s=SHORTLY_S)
        said = acted(house, "switch", NAME, OLD)
        switched_after = len(case_ids)
        assert eventually(lambda: len(case_ids) >= switched_after + AFTER, within_s=SHORTLY_S)

    assert f"{OLD} answers" in said
    assert_each_ended_once(house, case_ids)
    counts = answered_by(house, case_ids)
    # Each by the version that it was prepared for, and both had their turn.
    assert counts.keys() == all_by(NEW, 1).keys() | all_by(OLD, 1).keys()
    assert counts.total() == len(case_ids)
    assert min(counts.values()) >= BEFORE // 2
    with house.redis() as redis:
        assert redis.zcard(f"secondread:line:{{{NAME}:{NEW}:{SIDE_PX}}}:order") == 0
    assert eventually(lambda: reported(house, NEW) is None, within_s=GONE_WITHIN_S), log_of(house)
    assert reported(house, OLD) == "loaded"


@pytest.mark.parametrize("version", REFUSALS)
def test_a_switch_to_a_bad_version_is_refused_and_what_served_goes_on(
    serving_new: Deployment, small_studies: Sequence[bytes], version: str
) -> None:
    house = serving_new
    with flowing(house, small_studies) as case_ids:
        refused = models(house, "switch", NAME, version)

    assert refused.returncode == 1
    assert f"({REFUSALS[version]}, said by inference@" in refused.stderr.replace("\n", " ")
    assert "(model-refused)" in refused.stderr.replace("\n", " ")
    assert_each_ended_once(house, case_ids)
    assert answered_by(house, case_ids) == all_by(NEW, len(case_ids))
    acts = house.rows("SELECT act, serving, candidate, actor FROM model_acts ORDER BY number DESC LIMIT 2")
    assert [row[:3] for row in acts] == [("refused", NEW, None), ("load", NEW, version)]
    assert all("@" in row[3] for row in acts)


def test_a_canary_answers_its_share_and_a_rollback_ends_it(serving_new: Deployment, small_studies: Sequence[bytes]) -> None:
    house = serving_new
    acted(house, "switch", NAME, OLD, "--share", str(SHARE))
    assert is_taken_up(house, small_studies, OLD)
    case_ids = read_some(house, small_studies, CANARY_CASES)
    counts = answered_by(house, case_ids)
    (by_canary,) = all_by(OLD, 1)
    expected, spread = SHARE * len(case_ids), math.sqrt(len(case_ids) * SHARE * (1 - SHARE))
    assert abs(counts[by_canary] - expected) < 5 * spread
    assert counts.total() == len(case_ids)

    assert f"{NEW} answers." in acted(house, "rollback", NAME)
    assert is_taken_up(house, small_studies, NEW)
    case_ids = read_some(house, small_studies, 1)
    assert answered_by(house, case_ids) == all_by(NEW, len(case_ids))


def compared(house: Deployment) -> list[dict[str, object]]:
    lines = (house.logs / "inference-1.log").read_text().splitlines()
    return [json.loads(line) for line in lines if '"shadow_compared"' in line]


def test_a_shadow_reads_the_same_cases_and_answers_nobody(serving_new: Deployment, small_studies: Sequence[bytes]) -> None:
    house = serving_new
    acted(house, "switch", NAME, OLD, "--shadow")
    case_ids: list[str] = []

    def is_compared() -> bool:
        case_ids.append(house.door.answered(small_studies[len(case_ids) % len(small_studies)])["case_id"])
        return len(compared(house)) >= SHADOWED

    assert eventually(is_compared, within_s=SHORTLY_S), log_of(house)
    assert answered_by(house, case_ids) == all_by(NEW, len(case_ids))
    lines = compared(house)
    assert {(line["model"], line["answered_by"]) for line in lines} == {(f"{NAME}:{OLD}", f"{NAME}:{NEW}")}
    assert {str(line["case_id"]) for line in lines} <= {case_id.removeprefix("case_") for case_id in case_ids}
    # Two networks with random weights do not score alike.
    assert any(line["score_gap"] for line in lines)
    acted(house, "rollback", NAME)


def test_a_rollback_without_a_trial_lets_the_version_answer_that_did_before(
    serving_new: Deployment, small_studies: Sequence[bytes]
) -> None:
    house = serving_new
    acted(house, "switch", NAME, OLD)
    assert is_taken_up(house, small_studies, OLD)
    assert f"{NEW} answers." in acted(house, "rollback", NAME)
    assert is_taken_up(house, small_studies, NEW)
    case_ids = read_some(house, small_studies, 1)
    assert answered_by(house, case_ids) == all_by(NEW, len(case_ids))


def test_a_folder_that_is_added_serves_nobody_until_somebody_says_so(
    serving_new: Deployment, small_studies: Sequence[bytes], tmp_path: Path
) -> None:
    house = serving_new
    card = write_version(tmp_path, 9)
    assert f"{card.reference} is in" in acted(house, "add", str(tmp_path / "version-9"))
    assert "in the folder" in next(line for line in acted(house, "list").splitlines() if card.version in line)
    case_ids = read_some(house, small_studies, 1)
    assert answered_by(house, case_ids) == all_by(NEW, len(case_ids))

    acted(house, "switch", NAME, card.version)
    assert is_taken_up(house, small_studies, card.version)
    case_ids = read_some(house, small_studies, 1)
    assert answered_by(house, case_ids) == all_by(card.version, len(case_ids))
    again = models(house, "add", str(tmp_path / "version-9"))
    assert (again.returncode, "a version is never changed" in again.stderr.replace("\n", " ")) == (1, True)
