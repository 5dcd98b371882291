"""The product's own ledger functions on the model: their statements are answered by it, not by PostgreSQL.

Nothing of `pipeline/persistence/ledger/` is replaced but the server. That the model and PostgreSQL answer alike is what
`tests/integration/persistence/test_ledger_machine.py` proves.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Self, cast
from uuid import UUID

from sqlalchemy import Engine

from pipeline.cases.retries import MOST_TOKENS
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import admission, claims, compensation, deliveries, guard, outcomes, retries, sweep
from pipeline.persistence.ledger.claims import Return
from pipeline.persistence.ledger.compensation import PutOff
from pipeline.persistence.ledger.engine import Ledger, _prepared
from tests.ledger_model.answers import Owed
from tests.ledger_model.model import Model
from tests.ledger_model.rows import Event, ModelCase, Result

MODEL = "one:1"
POOL_OF = {state: pool for pool, states in POOL_STATES.items() for state in (states.queued, states.claimed)}


def moment(seconds: float) -> datetime:
    """A moment as the ledger gives it."""
    return datetime.fromtimestamp(seconds, UTC)


class MemoryLedger:
    """Both engines of a ledger, as far as `engine.run` asks anything of them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rung: Counter[str] = Counter()
        """Doorbells that the sweeper found to be gone, by why."""
        self.released: list[tuple[int, int]] = []
        """(cases of other lanes that waited, cases that were released) of each release."""
        self.needless = 0
        """Doorbells found to be overtaken that were still on their way."""
        self.tokens = dict.fromkeys(POOL_STATES, MOST_TOKENS)
        """What the pools' retry budgets hold."""
        self.speaks_of: Callable[[UUID, Pool], bool] = lambda _case_id, _pool: False
        self._waiting_count = 0
        self.info: dict[str, Any] = {}
        self._answers = {
            _prepared(statement).name: answer
            for statement, answer in (
                (admission._ACCEPT, self.accept),
                (claims._CLAIM, self.claim),
                (claims._RENEW, self.renew),
                (claims._HAND_ON, self.hand_on),
                (claims._GIVE_BACK, self.give_back),
                (claims._READ, self.read),
                (claims._UPSTREAM, self.count_upstream),
                (outcomes._COMPLETE, self.complete),
                (outcomes._END, self.end),
                (guard._OWED, self.owed),
                (guard._ANSWER, self.give_answer),
                (compensation._RELEASE, self.release),
                (compensation._PUT_OFF, self.put_off),
                (compensation._ROOM, self.look_round),
                (sweep._EXPIRED, self.free_expired),
                (sweep._OVERTAKEN, self.ring_overtaken),
                (sweep._ALL_QUEUED, self.ring_all),
                (sweep._DUE, self.ring_due),
                (sweep._SPENT, self.find_spent),
                (sweep._COUNTS, self.open_counts),
                (sweep._SEEN, self.newest_seen),
                (sweep._NEWEST_NO, self.newest_publish_no),
                (sweep._LAST_EVENT, self.last_event),
                (sweep._WAITING, self.awaiting_inference),
                (deliveries._DUE, self.due_deliveries),
                (retries._CHANGE, self.change_budgets),
                (retries._UNPAID, self.unpaid_retries),
            )
        }

    def ledger(self) -> Ledger:
        """The ledger whose functions are asked."""
        engine = cast(Engine, self)
        return Ledger(durable=engine, relaxed=engine)

    # What `engine.run` asks

    returns_rows = True

    def connect(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows: list[Any] = []

    def exec_driver_sql(self, sql: str, parameters: dict[str, Any] | None = None) -> Self:
        kind, name = sql.split("(", 1)[0].split(" ", 2)[:2]
        if kind == "EXECUTE":
            self._rows = list(self._answers[name](**(parameters or {})))
        return self

    def all(self) -> list[Any]:
        return self._rows

    # Clients and workers

    def accept(self, asked: str) -> Iterable[Any]:
        for new in json.loads(asked):
            times = {name: datetime.fromisoformat(new[name]).timestamp() for name in ("accepted_at", "deadline_at")}
            case, _ = self.model.accept(UUID(new["id"]), Lane(new["lane"]), key=new["key"], fingerprint=b"", **times)
            yield SimpleNamespace(id=case.case_id, publish_no=case.publish_no)

    def claim(self, ids: list[UUID], queued: str, worker: str, seen_no: int, **_: object) -> Iterable[Any]:
        taken = self.model.claim(ids, POOL_OF[CaseState(queued)], worker, seen_no=seen_no)
        return [self._case(self.model.cases[each]) for each in taken]

    def renew(self, ids: list[UUID], attempts: list[int], **_: object) -> Iterable[Any]:
        return [SimpleNamespace(id=each) for each in sorted(self.model.renew(list(zip(ids, attempts, strict=True))))]

    def hand_on(self, done: str, left: str, entered: str, worker: str) -> Iterable[Any]:
        held = [(UUID(each["case_id"]), each["attempt"]) for each in json.loads(done)]
        return self._rungs(self.model.hand_on(held, left=CaseState(left), entered=CaseState(entered), worker=worker))

    def give_back(self, ids: list[UUID], attempts: list[int], worker: str, **why: Any) -> Iterable[Any]:
        charge = {"is_free": why["is_free"], "is_strike": why["is_strike"]}
        back = Return(CaseState(why["left"]), CaseState(why["entered"]), why["code"], why["delay_s"], **charge)
        return self._rungs(self.model.give_back(list(zip(ids, attempts, strict=True)), back, worker=worker))

    def read(self, case_id: UUID) -> Iterable[Any]:
        return [self._case(self.model.cases[case_id])] if case_id in self.model.cases else []

    def count_upstream(self, states: list[str], limit: int) -> Iterable[Any]:
        found = sum(case.state in states and case.due_at <= self.model.now for case in self.model.cases.values())
        return [SimpleNamespace(case_count=min(found, limit))]

    def complete(self, left: str, worker: str, **done: list[Any]) -> Iterable[Any]:
        answers = zip(done["ids"], done["attempts"], done["versions"], done["kinds"], done["outcomes"], strict=True)
        held = [(each, attempt, Result(version, kind, outcome, attempt, 0.0)) for each, attempt, version, kind, outcome in answers]
        return [SimpleNamespace(id=each, is_own=True) for each in sorted(self.model.complete(held, left=CaseState(left), worker=worker))]

    def end(self, case_id: UUID, attempt: int, left: str, entered: str, code: str, worker: str | None, **_: object) -> Iterable[Any]:
        hold = (case_id, attempt)
        is_done = self.model.end_as(hold, left=CaseState(left), entered=CaseState(entered), code=code, worker=worker)
        return [SimpleNamespace(id=case_id)] if is_done else []

    # The guard

    def owed(self, wait_s: float, reserve_s: float, limit: int, **_: object) -> Iterable[Any]:
        for each in self.model.owed(wait_s=wait_s, reserve_s=reserve_s, limit=limit):
            row = self._case(self.model.cases[each.case_id])
            row.state, row.is_due = each.state.value, each.is_due
            yield row

    def give_answer(
        self,
        case_id: UUID,
        state: str,
        attempt: int,
        seen_version: int,
        is_put_off: bool,
        answer_version: int | None,
        reason: str,
        **_: object,
    ) -> Iterable[Any]:
        seen = Owed(case_id, CaseState(state), attempt, seen_version, is_due=is_put_off)
        return [SimpleNamespace(id=case_id)] if self.model.give_answer(seen, version=answer_version, reason=reason) else []

    def release(self, limit: int) -> Iterable[Any]:
        released = self.model.release(limit=limit)
        self.released.append((self._waiting_count, len(released)))
        return self._rungs(released)

    def put_off(self, case_id: UUID, attempt: int, state: str, reason: str, delay_s: float, to_human: bool, **_: object) -> Iterable[Any]:
        at_human = self.model.put_off(PutOff(case_id, attempt, CaseState(state), reason, delay_s, to_human))
        return [] if at_human is None else [SimpleNamespace(worklist_at=at_human or None)]

    def look_round(self, after_id: int, **_: object) -> Iterable[Any]:
        waiting, running, completed, last_id = self.model.look_round(after_id=after_id)
        self._waiting_count = waiting
        return [SimpleNamespace(waiting_count=waiting, running_count=running, completed_count=completed, last_id=last_id)]

    # The sweeper

    def free_expired(self, claimed: str, limit: int, **_: object) -> Iterable[Any]:
        return self._found("lease-expired", self.model.free_expired(POOL_OF[CaseState(claimed)], limit=limit))

    def ring_overtaken(self, queued: str, limit: int, seen_nos: str, **_: object) -> Iterable[Any]:
        # The product has folded in already which lanes may overtake which: each lane's number stands for itself.
        seen = {Lane(lane): number for lane, number in json.loads(seen_nos).items()}
        pool = POOL_OF[CaseState(queued)]
        rung = self.model.ring_overtaken(pool, seen, limit=limit)
        self.needless += sum(self.speaks_of(each, pool) for each in rung)
        return self._found("overtaken", rung)

    def ring_all(self, queued: str, limit: int, up_to_no: int, **_: object) -> Iterable[Any]:
        return self._rungs(self.model.ring_all(POOL_OF[CaseState(queued)], up_to_no=up_to_no, limit=limit))

    def ring_due(self, queued: str, limit: int, **_: object) -> Iterable[Any]:
        pool = POOL_OF[CaseState(queued)]
        rung = self.model.ring_due(pool, limit=limit, tokens=int(self.tokens[pool]))
        self.tokens[pool] -= sum(self.model.cases[each].tries > 0 for each in rung)
        return self._found("due", rung)

    def change_budgets(self, most: float, pools: list[str], changes: list[float]) -> Iterable[Any]:
        for name, change in zip(pools, changes, strict=True):
            pool = Pool(name)
            self.tokens[pool] = max(0.0, min(most, self.tokens[pool] + change))
            yield SimpleNamespace(pool=name, tokens=self.tokens[pool])

    def unpaid_retries(self, queued: str, limit: int, **_: object) -> Iterable[Any]:
        return [SimpleNamespace(id=each) for each in self.model.unpaid_retries(POOL_OF[CaseState(queued)], limit=limit)]

    def find_spent(self, queued: str, **_: object) -> Iterable[Any]:
        spent = [self.model.cases[each] for each in self.model.spent(POOL_OF[CaseState(queued)])]
        return [SimpleNamespace(id=case.case_id, attempt=case.attempt, state=case.state.value) for case in spent]

    def open_counts(self) -> Iterable[Any]:
        states = Counter(self.model.cases[each].state.value for each in self.model.open_ids())
        return [SimpleNamespace(state=state, case_count=number, oldest_s=0.0) for state, number in sorted(states.items())]

    def newest_seen(self, after_id: int) -> Iterable[Any]:
        groups: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
        for event in self.model.events[after_id:]:
            groups[event.entered.value, self.model.cases[event.case_id].lane.value].append(event)
        return [
            SimpleNamespace(
                entered_state=entered,
                lane=lane,
                last_id=max(event.id for event in events),
                publish_no=max((event.publish_no for event in events if event.publish_no is not None), default=None),
                event_count=len(events),
                first_count=sum(event.code is None for event in events),
                lapsed_count=sum(event.code == "lease-expired" for event in events),
            )
            for (entered, lane), events in sorted(groups.items())
        ]

    def newest_publish_no(self) -> Iterable[Any]:
        return [SimpleNamespace(last_value=self.model.newest_no)]

    def last_event(self) -> Iterable[Any]:
        return [SimpleNamespace(last_id=len(self.model.events))]

    def awaiting_inference(self, after_no: int, limit: int, **_: object) -> Iterable[Any]:
        for case in self.model.awaiting_inference(after_no=after_no, limit=limit):
            row = self._case(case)
            row.model, row.image_count = MODEL, 1
            yield row

    def due_deliveries(self, **_: object) -> Iterable[Any]:
        return []

    # Rows

    def _found(self, why: str, ids: Iterable[UUID]) -> list[Any]:
        rows = self._rungs(ids)
        self.rung[why] += len(rows)
        return rows

    def _rungs(self, ids: Iterable[UUID]) -> list[Any]:
        return [self._case(self.model.cases[each]) for each in ids]

    def _case(self, case: ModelCase) -> Any:
        return SimpleNamespace(
            id=case.case_id,
            attempt=case.attempt,
            tries=case.tries,
            strikes=case.strikes,
            left_s=case.deadline_at - self.model.now,
            lane=case.lane.value,
            publish_no=case.publish_no,
            accepted_at=moment(case.accepted_at),
            deadline_at=moment(case.deadline_at),
            input={"instances": []},
            work={},
            result_version=case.result_version,
            is_preliminary=case.is_preliminary,
            compensation_attempts=case.compensation_attempts,
            client_reference=None,
            endpoint_id=None,
        )
