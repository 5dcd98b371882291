"""What must hold of every decision, for any line, device and moment."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.batching.boarding import board
from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import LAST_CALL_MARGIN, Ceilings, Fire, Hold, Situation, decide
from tests.unit.batching.cases import NOW, Case

cases = st.builds(
    Case,
    deadline=st.floats(NOW - 10, NOW + 60),
    ready_at=st.floats(NOW - 30, NOW + 1),
    image_count=st.integers(1, 24),
    lane=st.sampled_from(["urgent", "routine", "compensation"]),
    prepared_in_s=st.floats(0, 10),
)
lines = st.lists(cases, max_size=40)
devices = st.builds(LatencyModel, alpha_s=st.floats(0, 8), beta_s=st.floats(0, 1), level=st.floats(0.2, 5), spread=st.floats(0, 1))
ceilings = st.builds(Ceilings, images=st.integers(1, 32), window_s=st.floats(0, 5))
moments = st.builds(
    Situation,
    now=st.just(NOW),
    held_since=st.none() | st.floats(NOW - 5, NOW),
    hazard=st.floats(0, 1e6),
    next_free_in_s=st.none() | st.floats(-1, 20),
    company=st.integers(0, 40),
    idle_count=st.integers(1, 4),
    device_count=st.integers(4, 8),
    after_s=st.floats(0, 1),
    is_last=st.booleans(),
)


@given(line=lines, device=devices, bounds=ceilings, moment=moments)
def test_no_batch_exceeds_the_ceiling_but_a_single_case_that_is_larger(
    line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation
) -> None:
    decision = decide(line, device, bounds, moment)

    if isinstance(decision, Fire):
        assert decision.members
        assert len(set(decision.members)) == len(decision.members)
        assert decision.image_count == sum(line[place].image_count for place in decision.members)
        assert decision.image_count <= bounds.images or len(decision.members) == 1


@given(line=lines, device=devices, bounds=ceilings, moment=moments)
def test_nobody_is_fired_who_is_known_to_be_late(line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation) -> None:
    decision = decide(line, device, bounds, moment)

    if isinstance(decision, Fire) and decision.reason != "spare device":
        regular = [line[place] for place in decision.members if line[place].lane != "compensation"]
        ends_at = NOW + device.at_most_s(decision.image_count, margin=1.7) + moment.after_s
        assert regular
        assert all(case.deadline >= ends_at - 1e-6 for case in regular)


@given(line=lines, device=devices, bounds=ceilings, moment=moments)
def test_no_hold_lasts_past_the_last_call_or_the_window(
    line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation
) -> None:
    decision = decide(line, device, bounds, moment)

    if isinstance(decision, Hold) and any(case.lane != "compensation" for case in line):
        aboard = board(line, device, bounds.images, now=NOW, after_s=moment.after_s)
        tightest = min(line[place].deadline for place in aboard.members)
        last_call = tightest - moment.after_s - device.at_most_s(aboard.images, margin=LAST_CALL_MARGIN)
        window_end = (moment.held_since if moment.held_since is not None else NOW) + bounds.window_s
        assert min(last_call, window_end) > NOW
        # A millisecond is the shortest sleep.
        assert NOW + decision.seconds <= max(min(last_call, window_end), NOW + 0.001) + 1e-6
        assert decision.seconds >= 0.001


@given(line=lines.filter(bool), device=devices, bounds=ceilings, moment=moments)
def test_a_line_that_fills_a_batch_never_waits(line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation) -> None:
    roomy = [Case(NOW + 1e6, case.ready_at, case.image_count, "routine") for case in line]

    decision = decide(roomy, device, bounds, moment)

    if sum(case.image_count for case in roomy) >= bounds.images:
        assert isinstance(decision, Fire)
        assert decision.reason == "full"


@given(line=lines.filter(bool), device=devices, bounds=ceilings, moment=moments)
def test_who_is_urgent_never_makes_a_line_wait_longer(line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation) -> None:
    routine = [Case(case.deadline, case.ready_at, case.image_count, "routine", case.prepared_in_s) for case in line]
    hurried = [Case(case.deadline, case.ready_at, case.image_count, "urgent", case.prepared_in_s) for case in line]

    if isinstance(decide(routine, device, bounds, moment), Fire):
        assert isinstance(decide(hurried, device, bounds, moment), Fire)
