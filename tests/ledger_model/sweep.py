"""Which doorbells are rung again, which claims are given up, and who has had too many tries."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from pipeline.cases.states import POOL_STATES
from pipeline.flow import Lane, Pool
from tests.ledger_model.rows import ModelCase, Rows

SERVED_AFTER = {
    Lane.URGENT: (Lane.URGENT, Lane.ROUTINE, Lane.COMPENSATION),
    Lane.ROUTINE: (Lane.ROUTINE, Lane.COMPENSATION),
    Lane.COMPENSATION: (Lane.COMPENSATION,),
}
"""By which lanes a doorbell of a lane can be overtaken: its own and those that a queue serves later."""


class SweepRules(Rows):
    """What the sweeper does."""

    __slots__ = ()

    def free_expired(self, pool: Pool, *, limit: int) -> list[UUID]:
        """Put back what lapsed and has tries left."""
        self.tick()
        states = POOL_STATES[pool]
        lapsed = [case for case in self._in_state(pool, is_claimed=True) if self.is_lapsed(case) and case.tries < self.limits.max_tries]
        chosen = sorted(lapsed, key=lambda case: case.lease_until or 0.0)[:limit]
        for case in chosen:
            self.move(case, states.queued, code="lease-expired")
            case.strikes += 1
            self.publish([case])
        return [case.case_id for case in chosen]

    def spent(self, pool: Pool) -> list[UUID]:
        """What nobody may claim any more."""
        self.tick()
        states = POOL_STATES[pool]
        return [each for each, case in self.cases.items() if case.tries >= self.limits.max_tries and self.is_free_for(case, states)]

    def ring_overtaken(self, pool: Pool, seen_nos: Mapping[Lane, int], *, limit: int) -> list[UUID]:
        """Ring for what was published long before doorbells that have been answered since."""
        self.tick()
        reached = {lane: max(seen_nos.get(later, 0) for later in SERVED_AFTER[lane]) - self.limits.overtaken_by for lane in Lane}
        settled = self._published_before(pool, self.limits.overtaken_after_s)
        return self._ring((case for case in settled if case.publish_no < reached[case.lane]), limit)

    def ring_all(self, pool: Pool, *, up_to_no: int, limit: int) -> list[UUID]:
        """Ring for whatever waits since a number."""
        self.tick()
        settled = self._published_before(pool, self.limits.settle_s)
        return self._ring((case for case in settled if case.publish_no <= up_to_no), limit)

    def ring_due(self, pool: Pool, *, limit: int, tokens: int) -> list[UUID]:
        """Ring for what was to be rung later, now that it is later: for nothing where it has had no try, else a token each."""
        self.tick()
        waiting = [case for case in self.cases.values() if self.waits_for(case, pool) and case.is_delayed and case.due_at <= self.now]
        due = sorted(waiting, key=lambda case: case.due_at)
        untried, tried = [case for case in due if case.tries == 0], [case for case in due if case.tries]
        chosen = untried[:limit]
        chosen += tried[: min(limit - len(chosen), tokens)]
        self.publish(chosen, delay_s=None)
        return [case.case_id for case in chosen]

    def unpaid_retries(self, pool: Pool, *, limit: int) -> list[UUID]:
        """Whose retry is due and was not rung."""
        waiting = [case for case in self.cases.values() if self.waits_for(case, pool) and case.is_delayed and case.due_at <= self.now]
        unpaid = sorted((case for case in waiting if case.tries), key=lambda case: case.due_at)
        return [case.case_id for case in unpaid[:limit]]

    def awaiting_inference(self, *, after_no: int, limit: int) -> list[ModelCase]:
        """What should stand in a waiting line by now."""
        self.tick()
        settled = self._published_before(Pool.INFERENCE, self.limits.settle_s)
        return sorted((case for case in settled if case.publish_no > after_no), key=lambda case: case.publish_no)[:limit]

    def newest_seen(self, *, after_id: int) -> tuple[int, dict[Pool, dict[Lane, int]], int]:
        """The newest event, the highest number answered by pool and lane since one, and how many claims there were."""
        self.tick()
        pools = {states.claimed: pool for pool, states in POOL_STATES.items()}
        claims = [event for event in self.events[after_id:] if event.entered in pools]
        seen: dict[Pool, dict[Lane, int]] = {}
        for event in claims:
            of_pool, lane = seen.setdefault(pools[event.entered], {}), self.cases[event.case_id].lane
            of_pool[lane] = max(of_pool.get(lane, 0), event.publish_no or 0)
        return len(self.events), seen, len(claims)

    def _in_state(self, pool: Pool, *, is_claimed: bool) -> list[ModelCase]:
        state = POOL_STATES[pool].claimed if is_claimed else POOL_STATES[pool].queued
        return [case for case in self.cases.values() if case.state is state]

    def _published_before(self, pool: Pool, age_s: float) -> list[ModelCase]:
        waiting = [case for case in self.cases.values() if self.waits_for(case, pool) and not case.is_delayed]
        return [case for case in waiting if case.published_at < self.now - age_s]

    def _ring(self, cases: Iterable[ModelCase], limit: int) -> list[UUID]:
        chosen = sorted(cases, key=lambda case: case.publish_no)[:limit]
        self.publish(chosen, delay_s=None)
        return [case.case_id for case in chosen]
