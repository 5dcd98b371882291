"""What must be true of every run, whatever its weather."""

from collections.abc import Iterator, Sequence

from pipeline.cases.compensation import SHARE
from pipeline.cases.states import CaseState
from tests.ledger_model.rows import ModelCase, Rows
from tests.simulation.weather import Weather
from tests.simulation.world import World

RESERVE_S = 2.0


def after_a_guard_round(world: World) -> None:
    """Nobody is owed an answer by the clock."""
    settings = world.services.settings
    owed = world.memory.model.owed(wait_s=settings.preliminary_after_s, reserve_s=settings.answer_reserve_s, limit=1)
    if owed:
        world.trouble(f"the guard has left {owed[0].case_id.int} without its answer")


def after_a_sweep(world: World, *, most: int) -> None:
    """The budget is kept, and tries are bounded."""
    rung = sum(world.memory.rung.values())
    if rung > most:
        world.trouble(f"{rung} doorbells rung again in one round")
    limits = world.memory.model.limits
    for case in world.memory.model.cases.values():
        if case.tries > limits.max_tries or case.attempt > _most_attempts(world.memory.model, case):
            world.trouble(f"{case.case_id.int} is at attempt {case.attempt}, try {case.tries}")


def _most_attempts(model: Rows, case: ModelCase) -> int:
    """Once all attempts are spent each try of a pool is the last; a put-off case begins anew."""
    limits = model.limits
    return limits.most_attempts + 3 * limits.max_tries * (1 + case.compensation_attempts)


def at_the_end(world: World, weather: Weather, guard_rounds: Sequence[float]) -> list[str]:
    """Judge a whole run."""
    cases = world.memory.model.cases.values()
    return [
        *(f"{case.case_id.int} {what}" for case in cases for what in _of_case(world, weather, case, guard_rounds)),
        *_lost(world, weather),
        *_share(world),
        *_needless(world),
    ]


def _lost(world: World, weather: Weather) -> Iterator[str]:
    if len(world.memory.model.cases) != len(weather.arrivals):
        yield f"{len(weather.arrivals)} were promised, {len(world.memory.model.cases)} are there"


def _of_case(world: World, weather: Weather, case: ModelCase, guard_rounds: Sequence[float]) -> Iterator[str]:
    if case.is_open and case.worklist_at is None:
        yield f"is {case.state} for ever"
    kinds = [result.kind for result in case.results]
    if kinds not in ([], ["preliminary"], ["final"], ["preliminary", "final"]):
        yield f"has the answers {kinds}"
    if (case.state is CaseState.COMPLETED) != (kinds[-1:] == ["final"]):
        yield f"is {case.state} with the answers {kinds}"
    if not _is_in_time(case, guard_rounds):
        yield "had no answer by its deadline, although the guard was there"
    traits = world.traits[case.case_id]
    if traits.is_innocent and case.state is not CaseState.COMPLETED and case.state is not CaseState.CANCELLED and _is_gentle(weather):
        yield f"is {case.state}, although nothing is wrong with it"


def _is_gentle(weather: Weather) -> bool:
    """Nothing takes a process down: a case that kills one takes along, try by try, whoever shared its claims."""
    has_killers = any(arrival.traits.kills for arrival in weather.arrivals)
    return not has_killers and not weather.crashes and not weather.freezes and weather.crash_chance == 0


def _is_in_time(case: ModelCase, guard_rounds: Sequence[float]) -> bool:
    due_at = case.deadline_at - min(RESERVE_S, (case.deadline_at - case.accepted_at) / 5)
    answers = [result.at for result in case.results] + ([case.ended_at] if case.ended_at else [])
    answered_at = min(answers, default=float("inf"))
    was_guarded = any(due_at < moment < case.deadline_at for moment in guard_rounds)
    return answered_at <= case.deadline_at or not was_guarded


def _share(world: World) -> Iterator[str]:
    """Put-off cases take their tenth while others wait, and no more."""
    completed = sum(event.entered is CaseState.COMPLETED for event in world.memory.model.events)
    taken = sum(count for waiting, count in world.memory.released if waiting)
    if taken > SHARE * completed:
        yield f"{taken} put-off cases went while others waited, {completed} were completed"


def _needless(world: World) -> Iterator[str]:
    """A doorbell that is still on its way is rung again only where it is late indeed."""
    most = 3 * world.redis.late_count
    if world.memory.needless > most:
        yield f"{world.memory.needless} doorbells were rung again that were on their way, {world.redis.late_count} were late"
