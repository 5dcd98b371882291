"""What an inference process has in memory, as the ledger's plans and its open cases want it, with real folders and a real ledger."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.cases.serving import ServingPlan
from pipeline.flow import Pool
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.seeded import write_seeded_model
from pipeline.inference.shelf import CardShelf
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.models import live_reports, read_plans, record_act
from tests.integration.workers.prepared_cases import PreparedCases
from tests.integration.workers.stub_cases import StubCases
from workers.doorbell import place_in_line
from workers.former import Former
from workers.model_keeper import ModelKeeper
from workers.shadow import Shadow
from workers.stage_task import PoolRuntime
from workers.wiring import Services

pytestmark = pytest.mark.services

SIDE_PX = 32
NAME = "seeded-unet"
OLD, NEW = f"{NAME}:1.{SIDE_PX}", f"{NAME}:2.{SIDE_PX}"
ROUNDS = 50


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    for seed in (1, 2):
        write_seeded_model(folder / f"version-{seed}", seed=seed, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    return folder


@pytest.fixture
def services(runtime: PoolRuntime, models_dir: Path, cases: StubCases) -> Services:
    cases.empty()
    return replace(runtime.services, cards=CardShelf(models_dir, look_every_s=0.0))


@dataclass
class House:
    """One inference process without its threads: the tests turn it by hand."""

    services: Services
    registry: ModelRegistry
    keeper: ModelKeeper
    former: Former

    @property
    def ledger(self) -> Ledger:
        return self.services.ledger

    def act(self, serving: str, **others: object) -> None:
        """Put the next plan in force, as an operator does."""
        before = read_plans(self.ledger)[NAME]
        plan = ServingPlan(NAME, before.number + 1, "switch", serving.partition(":")[2], **others)  # type: ignore[arg-type]
        assert record_act(self.ledger, plan, actor="test")

    def turn(self) -> None:
        """A round of the keeper, and then as many turns of the model thread as there is work for."""
        self.keeper.round()
        for _ in range(ROUNDS):
            pause_s = self.former._turn()
            self.former.settle()
            if pause_s > 0:
                return


@pytest.fixture
def make_house(runtime: PoolRuntime, services: Services, models_dir: Path) -> Callable[..., House]:
    def make(*, linger_s: float = 0.0) -> House:
        registry = ModelRegistry(models_dir)
        shadow = Shadow(registry, services.tensors)
        keeper = ModelKeeper(services, registry, shadow, on_death=lambda: None, linger_s=linger_s)
        keeper.begin()
        ours = replace(runtime, pool=Pool.INFERENCE, services=services)
        return House(services, registry, keeper, Former(ours, registry, on_death=lambda: None, shadow=shadow))

    return make


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    return make_house()


def states(house: House) -> dict[str, str]:
    return {report.reference: report.state for report in live_reports(house.ledger)}


def in_line(house: House, model: str, count: int, *, line: str | None = None) -> None:
    """Cases that were prepared for a version, in its line (or, by mistake, in another's)."""
    services = house.services
    images = [np.full((1, SIDE_PX, SIDE_PX), number, np.uint8) for number in range(count)]
    rungs = PreparedCases(services.ledger, services.tensors, model).bring(images)
    now = services.clock.now()
    services.line(line or model).join(place_in_line(rung, accepted_at=now, image_count=1, now_s=now.timestamp()) for rung in rungs)


def test_without_a_plan_the_newest_version_is_loaded_alone_and_noted_as_the_default(house: House) -> None:
    assert house.registry.served == (NEW,)
    house.keeper.round()
    plan = read_plans(house.ledger)[NAME]
    assert (plan.act, plan.serving, plan.number) == ("default", f"2.{SIDE_PX}", 1)
    assert states(house) == {NEW: "loaded"}


def test_a_folder_that_comes_later_is_not_loaded_by_itself(house: House, models_dir: Path) -> None:
    house.keeper.round()
    write_seeded_model(models_dir / "version-3", seed=3, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    house.keeper.round()
    assert house.registry.served == (NEW,)
    assert read_plans(house.ledger)[NAME].serving == f"2.{SIDE_PX}"


def test_after_a_restart_the_operators_version_serves_and_not_the_newest(house: House, make_house: Callable[..., House]) -> None:
    house.keeper.round()
    house.act(OLD)
    again = make_house()
    assert again.registry.served == (OLD,)
    again.keeper.round()
    assert read_plans(house.ledger)[NAME].act == "switch"


def test_a_version_that_a_plan_names_is_loaded_and_the_other_is_let_go_with_its_memory(house: House) -> None:
    house.keeper.round()
    network = weakref.ref(house.registry.runner(NEW))
    house.act(OLD)
    house.turn()
    assert OLD in house.registry.served
    house.turn()
    house.turn()
    assert house.registry.served == (OLD,)
    gc.collect()
    assert network() is None
    assert [model.reference for model in house.former.lines] == [OLD]
    house.keeper.round()
    assert states(house) == {OLD: "loaded"}


def test_a_version_stays_for_a_while_after_its_last_plan(make_house: Callable[..., House]) -> None:
    house = make_house(linger_s=3600.0)
    house.keeper.round()
    house.act(OLD)
    for _ in range(3):
        house.turn()
    assert set(house.registry.served) == {OLD, NEW}


def test_the_old_version_finishes_its_line_before_it_goes(house: House, cases: StubCases) -> None:
    house.keeper.round()
    in_line(house, NEW, 3)
    house.act(OLD)
    house.keeper.round()
    house.keeper.round()
    assert NEW in house.registry.served
    house.turn()
    assert set(cases.states().values()) == {"awaiting_report"}
    assert {row.work["inferred"]["model"] for row in cases.rows().values()} == {NEW}
    house.turn()
    house.turn()
    assert house.registry.served == (OLD,)


def test_a_version_stays_for_a_case_that_its_line_has_lost(house: House) -> None:
    house.keeper.round()
    services = house.services
    PreparedCases(services.ledger, services.tensors, NEW).bring([np.zeros((1, SIDE_PX, SIDE_PX), np.uint8)])
    house.act(OLD)
    for _ in range(3):
        house.turn()
    assert set(house.registry.served) == {OLD, NEW}


def test_cases_that_come_for_a_version_that_has_gone_bring_it_back(house: House, cases: StubCases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.model_keeper.WANTED_EVERY_S", 0.0)
    house.keeper.round()
    house.act(OLD)
    for _ in range(3):
        house.turn()
    assert house.registry.served == (OLD,)
    in_line(house, NEW, 2)
    house.turn()
    assert set(cases.states().values()) == {"awaiting_report"}
    assert {row.work["inferred"]["model"] for row in cases.rows().values()} == {NEW}


def test_a_case_in_the_line_of_a_version_that_it_was_not_prepared_for_is_read_by_its_own(house: House, cases: StubCases) -> None:
    house.keeper.round()
    house.act(OLD, canary=f"2.{SIDE_PX}", share=0.5)
    house.keeper.round()
    in_line(house, OLD, 2, line=NEW)
    house.turn()
    assert {row.work["inferred"]["model"] for row in cases.rows().values()} == {OLD}
    # On their way, at the wrong line, at their own.
    assert {(row.attempt, row.state) for row in cases.rows().values()} == {(3, "awaiting_report")}


@pytest.fixture
def spoilt(models_dir: Path) -> str:
    """A version that is not what its card says."""
    card = write_seeded_model(models_dir / "version-3", seed=3, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    (models_dir / "version-3" / card.weights).write_bytes(b"something else")
    return card.reference


def test_a_bad_version_is_refused_once_for_each_act_and_what_serves_goes_on(
    house: House, spoilt: str, cases: StubCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.keeper.round()
    tries: list[str] = []
    admit = house.registry.admit

    def counted(reference: str, *, in_background: bool = False) -> object:
        tries.append(reference)
        return admit(reference, in_background=in_background)

    monkeypatch.setattr(house.registry, "admit", counted)
    house.act(NEW, candidate=spoilt.partition(":")[2])
    for _ in range(3):
        house.turn()
    assert tries == [spoilt]
    (report,) = [each for each in live_reports(house.ledger) if each.reference == spoilt]
    assert (report.state, report.code, report.act_number) == ("refused", "weights-refused", 2)
    in_line(house, NEW, 2)
    house.turn()
    assert set(cases.states().values()) == {"awaiting_report"}

    house.act(NEW, candidate=spoilt.partition(":")[2])
    house.turn()
    assert tries == [spoilt, spoilt]


def test_the_newest_folder_is_bad_at_the_start_and_the_one_before_it_serves(spoilt: str, make_house: Callable[..., House]) -> None:
    house = make_house()
    house.keeper.round()
    assert house.registry.served == (NEW,)
    assert states(house) == {NEW: "loaded", spoilt: "refused"}


def test_whoever_stops_is_not_counted_any_more(house: House) -> None:
    house.keeper.start()
    house.keeper.round()
    house.keeper.close()
    assert live_reports(house.ledger) == []
