"""An operator's acts on a real ledger, with inference processes that are only their reports."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from pipeline.cases.serving import ServingPlan
from pipeline.inference.card import find_cards
from pipeline.inference.seeded import write_card, write_seeded_model
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.models import ModelReport, ReportState, live_reports, read_plans, record_act, say_loaded
from tests.integration.workers.stub_cases import StubCases
from workers.stage_task import PoolRuntime
from workers.switching import (
    NothingBefore,
    Operator,
    ShadowInputDiffers,
    SomebodyElseActed,
    VersionNotLoaded,
    VersionRefused,
    VersionUnknown,
    Wish,
)

pytestmark = pytest.mark.services

NAME, SIDE_PX = "seeded-unet", 32
OLD, NEW = f"1.{SIDE_PX}", f"2.{SIDE_PX}"
BRIEFLY_S = 0.6
PATIENCE_S = 60.0


@pytest.fixture
def ledger(runtime: PoolRuntime) -> Ledger:
    StubCases(runtime.services.ledger).empty()
    record_act(runtime.services.ledger, ServingPlan(NAME, 1, "default", OLD), actor="inference-1")
    return runtime.services.ledger


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    for seed in (1, 2):
        write_seeded_model(tmp_path / "models" / f"version-{seed}", seed=seed, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    return tmp_path / "models"


@pytest.fixture
def operator(ledger: Ledger, models_dir: Path) -> Callable[..., Operator]:
    return lambda patience_s=PATIENCE_S: Operator(ledger, find_cards(models_dir), actor="somebody@here", patience_s=patience_s)


def says(ledger: Ledger, worker: str, *versions: tuple[str, ReportState]) -> None:
    """An inference process reports; a refusal is of the act in force."""
    number = read_plans(ledger)[NAME].number
    reports = [
        ModelReport(
            worker, NAME, version, state, *((number, None, "bad-output", "the model's answer is not finite") if state == "refused" else ())
        )
        for version, state in versions
    ]
    say_loaded(ledger, worker, reports)


@contextmanager
def answering(ledger: Ledger, workers: Sequence[str], state: ReportState) -> Iterator[None]:
    """These processes serve the old version, and say so of every candidate, until the block is over."""
    is_over = threading.Event()
    for worker in workers:
        says(ledger, worker, (OLD, "loaded"))

    def answer() -> None:
        while not is_over.wait(0.05):
            candidate = read_plans(ledger)[NAME].candidate
            if candidate is not None:
                # The old version may be the candidate itself.
                about: dict[str, ReportState] = {candidate: state, OLD: "loaded"}
                for worker in workers:
                    says(ledger, worker, *about.items())

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def quiet(_line: str) -> None:
    """Progress that nobody looks at."""


def acts(ledger: Ledger) -> list[tuple[object, ...]]:
    rows = run(ledger.relaxed, text("SELECT number, act, serving, canary, candidate, actor FROM model_acts ORDER BY number"))
    return [tuple(row) for row in rows]


def test_a_version_answers_once_every_process_has_loaded_it_and_each_step_is_written_down(
    ledger: Ledger, operator: Callable[..., Operator]
) -> None:
    with answering(ledger, ["inference-1", "inference-2"], "loaded"):
        plan = operator().switch(Wish(NAME, NEW), quiet)
    assert (plan.serving, plan.before) == (NEW, OLD)
    assert read_plans(ledger) == {NAME: plan}
    assert acts(ledger) == [
        (1, "default", OLD, None, None, "inference-1"),
        (2, "load", OLD, None, NEW, "somebody@here"),
        (3, "switch", NEW, None, None, "somebody@here"),
    ]


def test_one_refusal_is_enough(ledger: Ledger, operator: Callable[..., Operator]) -> None:
    says(ledger, "inference-2", (OLD, "loaded"))
    with (
        answering(ledger, ["inference-1"], "refused"),
        pytest.raises(VersionRefused, match=r"is not finite .bad-output, said by inference-1"),
    ):
        operator().switch(Wish(NAME, NEW), quiet)
    assert [act[1] for act in acts(ledger)] == ["default", "load", "refused"]
    assert read_plans(ledger)[NAME].versions == (OLD,)


def test_a_refusal_of_an_earlier_act_says_nothing_of_this_one(ledger: Ledger, operator: Callable[..., Operator]) -> None:
    says(ledger, "inference-1", (OLD, "loaded"), (NEW, "refused"))
    with pytest.raises(VersionNotLoaded):
        operator(BRIEFLY_S).switch(Wish(NAME, NEW), quiet)


def test_nothing_is_switched_while_a_process_has_not_loaded_it(ledger: Ledger, operator: Callable[..., Operator]) -> None:
    says(ledger, "inference-1", (OLD, "loaded"), (NEW, "loaded"))
    says(ledger, "inference-2", (OLD, "loaded"), (NEW, "loading"))
    said: list[str] = []
    with pytest.raises(VersionNotLoaded, match="loaded by 1 of 2 inference processes"):
        operator(BRIEFLY_S).switch(Wish(NAME, NEW), said.append)
    assert said == [f"{NAME}:{NEW}: loaded by 1 of 2 inference processes"]
    assert read_plans(ledger)[NAME].serving == OLD


def test_nothing_is_switched_while_no_process_runs(operator: Callable[..., Operator]) -> None:
    with pytest.raises(VersionNotLoaded):
        operator(BRIEFLY_S).switch(Wish(NAME, NEW), quiet)


@pytest.mark.parametrize(("name", "version"), [("another", "1"), (NAME, "99")])
def test_what_nobody_knows_is_refused_at_once(ledger: Ledger, operator: Callable[..., Operator], name: str, version: str) -> None:
    with pytest.raises(VersionUnknown):
        operator().switch(Wish(name, version), quiet)
    assert len(acts(ledger)) == 1


def test_a_model_that_is_new_to_the_house_answers_nobody_before_it_is_loaded(
    ledger: Ledger, models_dir: Path, operator: Callable[..., Operator]
) -> None:
    card = write_seeded_model(models_dir / "another", seed=1, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    write_card(models_dir / "another", card.model_copy(update={"name": "another"}))
    with pytest.raises(VersionNotLoaded):
        operator(BRIEFLY_S).switch(Wish("another", card.version), quiet)
    assert read_plans(ledger)["another"].serving is None


def test_a_canary_has_a_share_and_a_rollback_withdraws_it(ledger: Ledger, operator: Callable[..., Operator]) -> None:
    with answering(ledger, ["inference-1"], "loaded"):
        plan = operator().switch(Wish(NAME, NEW, share=0.05), quiet)
        assert (plan.serving, plan.canary, plan.share) == (OLD, NEW, 0.05)
        plan = operator().rollback(NAME, quiet)
    assert (plan.act, plan.serving, plan.canary, plan.share) == ("rollback", OLD, None, 0.0)


def test_a_rollback_brings_back_the_version_before_and_another_one_the_version_after(
    ledger: Ledger, operator: Callable[..., Operator]
) -> None:
    with answering(ledger, ["inference-1"], "loaded"):
        operator().switch(Wish(NAME, NEW), quiet)
        assert operator().rollback(NAME, quiet).serving == OLD
        assert operator().rollback(NAME, quiet).serving == NEW


def test_where_nothing_answered_before_there_is_nothing_to_roll_back_to(operator: Callable[..., Operator]) -> None:
    with pytest.raises(NothingBefore):
        operator().rollback(NAME, quiet)


def test_a_shadow_that_takes_another_input_is_refused(ledger: Ledger, models_dir: Path, operator: Callable[..., Operator]) -> None:
    card = write_seeded_model(models_dir / "larger", seed=3, side_px=64, widths=(4, 4, 4, 4))
    with pytest.raises(ShadowInputDiffers):
        operator().switch(Wish(NAME, card.version, is_shadow=True), quiet)
    assert len(acts(ledger)) == 1


def test_of_two_operators_who_saw_the_same_state_one_wins(ledger: Ledger) -> None:
    plan = ServingPlan(NAME, 2, "switch", NEW, before=OLD)
    assert [record_act(ledger, each, actor="x") for each in (plan, replace(plan, serving=OLD))] == [True, False]
    assert read_plans(ledger)[NAME] == plan


def test_somebody_who_acts_meanwhile_is_not_overruled(ledger: Ledger, operator: Callable[..., Operator]) -> None:
    def act_meanwhile(_line: str) -> None:
        loading = read_plans(ledger)[NAME]
        record_act(ledger, replace(loading, number=loading.number + 1, act="rollback", candidate=None), actor="another")
        says(ledger, "inference-1", (OLD, "loaded"), (NEW, "loaded"))

    says(ledger, "inference-1", (OLD, "loaded"))
    with pytest.raises(SomebodyElseActed):
        operator().switch(Wish(NAME, NEW), act_meanwhile)
    assert read_plans(ledger)[NAME].act == "rollback"


def test_who_has_been_silent_for_long_is_not_counted(ledger: Ledger) -> None:
    says(ledger, "inference-1", (OLD, "loaded"))
    run(ledger.relaxed, text("UPDATE model_reports SET seen_at = clock_timestamp() - interval '1 min'"))
    assert live_reports(ledger) == []


def test_a_report_takes_the_place_of_the_one_before(ledger: Ledger) -> None:
    says(ledger, "inference-1", (OLD, "loaded"), (NEW, "loading"))
    says(ledger, "inference-2", (OLD, "loaded"))
    says(ledger, "inference-1", (NEW, "loaded"))
    assert [(each.worker, each.version, each.state) for each in live_reports(ledger)] == [
        ("inference-2", OLD, "loaded"),
        ("inference-1", NEW, "loaded"),
    ]


def test_the_ledger_refuses_to_change_an_act(ledger: Ledger) -> None:
    with pytest.raises(Exception, match="rows of model_acts are only added"):
        run(ledger.relaxed, text("UPDATE model_acts SET actor = 'nobody'"))
