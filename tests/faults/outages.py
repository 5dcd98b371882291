"""B3, B4, B5, B10: Valkey away or frozen, deaf connections, a source that drips; guarded, for cases have the product's deadline."""

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from pipeline.flow import DEADLINE_S
from tests.faults.arena import Arena, Row, Tell, arena, slower_than
from tests.faults.ftp import running_ftp
from tests.faults.history import read_history
from tests.faults.load import Load
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.servers import Servers
from tests.faults.stub_stages import Manner
from tests.faults.wires import wires_to

GENTLE = Load(1_000_000, most_open=1_000_000, together=2, deadline_s=DEADLINE_S, pause_s=0.2)
"""A few cases a second, whatever is open: nobody waits for the backlog."""
WARM_CASES = 20
DOWN_S = 60.0
FROZEN_S = 20.0
DEAF_S = 15.0
DRAINED_S = 60.0
THAWED_S = 5.0
NOTICED_S = 10.0
CALL_S = 1.0
DRIPPING_CASES = 8
DRIP_S = 16.0
"""Twice the limit of a fetch."""
DELAYED_S = 5.0
MOST_TRANSFERS = 3
"""A case asks for its image once within its deadline, and in the compensation lane again."""
CALM_S = 10.0
"""Between two faults."""
Span = tuple[float, float]
"""From when until when, in Unix seconds."""
NEVER: Span = (0.0, 0.0)
LATE_ANSWER_S = 1.0
"""I4's tolerance: no answer later than this after the deadline."""


@dataclass(slots=True)
class _Outage:
    """One run under a gentle load, with sweeper and guard."""

    run: Arena
    back_at: list[float] = field(default_factory=list)
    """When a fault ended, in Unix seconds."""
    recovered_s: list[float] = field(default_factory=list)

    def begin(self) -> None:
        self.run.group.start_sweeper()
        self.run.group.start_guard()
        self.run.group.start()
        self.run.submit()
        self.run.until(lambda completed: completed >= WARM_CASES, "warming up")

    def recover(self, saying: str) -> None:
        """The fault is over: wait until a case that was accepted after its end has its result."""
        back_at = time.time()
        self.run.until(lambda _: self.run.watcher.answered_since(back_at), saying)
        self.back_at.append(back_at)
        self.recovered_s.append(time.time() - back_at)

    def finish(self, fault: str, what: str, *, recovered_s: float | None, shortfalls: list[str], ledger_away: Span = NEVER) -> Row:
        self.run.stop_submitting()
        drain_from = time.time()
        self.run.until(lambda _: self.open_in_time() == 0, "draining")
        drained_s = time.time() - drain_from
        # Then those that were answered and put off: they are read beside other work, a few at a time.
        self.run.drain()
        verdict, _ = self.run.judge()
        shortfalls += slower_than(DRAINED_S, drained_s, "the drain")
        late = self.unanswered_in_time(ledger_away)
        shortfalls += [f"{late} cases had no answer {LATE_ANSWER_S:.0f} s after their deadline"] if late else []
        return self.run.row(fault, what, verdict, recovered_s=recovered_s, shortfalls=shortfalls)

    def open_in_time(self) -> int:
        """Open cases that were not put off."""
        ((count,),) = self.run.watcher.rows("SELECT count(*) FROM cases WHERE ended_at IS NULL AND lane <> 'compensation'")
        return int(count)

    def unanswered_in_time(self, ledger_away: Span) -> int:
        """Cases whose first answer, preliminary or final, came later than their deadline, or never; no answer is due without a ledger."""
        ((count,),) = self.run.watcher.rows(
            """SELECT count(*) FROM cases LEFT JOIN (SELECT case_id, min(created_at) AS at FROM results GROUP BY 1) AS first
               ON first.case_id = cases.id WHERE first.at IS NULL OR first.at > deadline_at + make_interval(secs => %s)
                 AND deadline_at NOT BETWEEN to_timestamp(%s) AND to_timestamp(%s)""",
            LATE_ANSWER_S,
            *ledger_away,
        )
        return int(count)

    def slowest_call_s(self, begun_at: float, ended_at: float) -> float:
        """The longest submission that began within the outage."""
        history = read_history(self.run.place.folder / "history.jsonl")
        return max((each.ended_at - each.began_at for each in history if begun_at <= each.began_at <= ended_at), default=0.0)

    def refused(self, begun_at: float, ended_at: float) -> int:
        """Submissions within the outage that were not accepted."""
        history = read_history(self.run.place.folder / "history.jsonl")
        return sum(each.outcome != "ok" for each in history if begun_at <= each.began_at <= ended_at)


def away_valkey(servers: Servers, tell: Tell, *, down_s: float = DOWN_S) -> Row:
    """B3: Valkey is killed under load and comes back, empty, a minute later. The door accepts without it: PostgreSQL alone suffices."""
    with arena(servers, "b3", GENTLE, Manner(), tell) as run:
        outage = _Outage(run)
        outage.begin()
        run.tell(run.watcher.completed(), f"Valkey is away for {down_s:.0f} s")
        struck_at = servers.kill_valkey(down_s=down_s)
        run.strikes.append(struck_at)
        back_at = time.time()
        outage.recover("Valkey is back")
        slowest_s = outage.slowest_call_s(struck_at, back_at)
        shortfalls = slower_than(DRAINED_S, outage.recovered_s[0], "work after the outage")
        shortfalls += slower_than(CALL_S, slowest_s, "a submission")
        refused = outage.refused(struck_at, back_at)
        shortfalls += [f"{refused} submissions refused, although PostgreSQL was there"] if refused else []
        return outage.finish("B3", f"Valkey away for {down_s:.0f} s", recovered_s=outage.recovered_s[0], shortfalls=shortfalls)


def frozen_valkey(servers: Servers, tell: Tell, *, frozen_s: float = FROZEN_S) -> Row:
    """B4: Valkey is stopped (SIGSTOP) for twenty seconds: it takes connections and answers nobody."""
    with arena(servers, "b4", GENTLE, Manner(), tell) as run:
        outage = _Outage(run)
        outage.begin()
        struck_at = time.time()
        run.strikes.append(struck_at)
        with servers.frozen_valkey():
            until = time.monotonic() + frozen_s
            run.until(lambda _: time.monotonic() > until, "Valkey is frozen", limit_s=frozen_s + 5)
        back_at = time.time()
        outage.recover("Valkey is awake")
        slowest_s = outage.slowest_call_s(struck_at, back_at)
        shortfalls = slower_than(THAWED_S, outage.recovered_s[0], "work after the thaw")
        shortfalls += slower_than(CALL_S, slowest_s, "a submission")
        return outage.finish("B4", f"Valkey frozen for {frozen_s:.0f} s", recovered_s=outage.recovered_s[0], shortfalls=shortfalls)


def deaf_connections(servers: Servers, tell: Tell, *, times: int = 2, deaf_s: float = DEAF_S) -> Row:
    """B5: every connection to Valkey, then to PostgreSQL, goes deaf without a word; new ones work at once, or only after a while."""
    with (
        wires_to(redis_url=servers.valkey.url, database_url=servers.postgres.url) as wires,
        arena(servers, "b5", GENTLE, Manner(), tell, wires=wires) as run,
    ):
        outage = _Outage(run)
        outage.begin()
        slowest: dict[str, float] = {}
        begun_at: dict[str, float] = {}
        for name, proxy in (("Valkey", wires.valkey), ("PostgreSQL", wires.postgres)):
            begun_at[name] = time.time()
            for held_s in (0.0, *(deaf_s for _ in range(times - 1))):
                _deafen(outage, name, proxy, held_s)
            slowest[name] = max(outage.recovered_s[-times:])
        shortfalls = [each for name, took_s in slowest.items() for each in slower_than(NOTICED_S, took_s, f"a deaf connection to {name}")]
        worst_s = max(outage.recovered_s)
        return outage.finish(
            "B5",
            "connections to Valkey and PostgreSQL went deaf",
            recovered_s=worst_s,
            shortfalls=shortfalls,
            ledger_away=(begun_at["PostgreSQL"], time.time()),
        )


def _deafen(outage: _Outage, name: str, proxy: FaultProxy, held_s: float) -> None:
    proxy.behave(Fault.SWALLOW)
    outage.run.strikes.append(time.time())
    until = time.monotonic() + held_s
    outage.run.until(lambda _: time.monotonic() >= until, f"{name} hears nothing", limit_s=held_s + 5)
    proxy.behave()
    outage.recover(f"{name} can be reached anew")
    calm = time.monotonic() + CALM_S
    outage.run.until(lambda _: time.monotonic() >= calm, "catching breath", limit_s=CALM_S + 5)


def dripping_source(servers: Servers, tell: Tell, *, drip_s: float = DRIP_S) -> Row:
    """B10: an archive gives one byte a second; its cases are answered and read later, everybody else's are read as ever."""
    with running_ftp() as archive:
        archive.is_echo, archive.drip_every_s = True, 1.0
        with arena(servers, "b10", GENTLE, Manner(threads=4), tell, sources={"drip": archive.url}) as run:
            outage = _Outage(run)
            outage.begin()
            begun_at = time.time()
            run.strikes.append(begun_at)
            run.submit(replace(GENTLE, cases=DRIPPING_CASES, together=DRIPPING_CASES, source="drip", seed=2))
            until = time.monotonic() + drip_s
            run.until(lambda _: time.monotonic() > until, "the archive drips", limit_s=drip_s + 5)
            ended_at = time.time()
            archive.drip_every_s = None
            # As an operator does when the archive is well again: its cases need not wait for their next try.
            run.until(lambda _: _retry_put_off(run) == 0, "the archive flows")
            slowest_s = _slowest_of_others_s(run, begun_at, ended_at)
            given_up = _count_given_up(run)
            most = max(Counter(archive.asked).values(), default=0)
            shortfalls = slower_than(DELAYED_S, slowest_s, "another source's case")
            shortfalls += [] if given_up else ["no fetch was given up with source-timeout"]
            shortfalls += [f"an image was asked for {most} times, bar {MOST_TRANSFERS}"] if most > MOST_TRANSFERS else []
            return outage.finish("B10", "an archive that gives a byte a second", recovered_s=slowest_s, shortfalls=shortfalls)


def _retry_put_off(run: Arena) -> int:
    """Make the archive's cases that were put off due now; return how many of the archive's are open."""
    run.watcher.rows("UPDATE cases SET due_at = clock_timestamp() WHERE state = 'deferred' AND due_at > clock_timestamp() RETURNING 1")
    ((count,),) = run.watcher.rows("SELECT count(*) FROM cases WHERE ended_at IS NULL AND input->>'source' = 'drip'")
    return int(count)


def _slowest_of_others_s(run: Arena, begun_at: float, ended_at: float) -> float:
    """The longest that a case without a source took from its acceptance to its end, while the archive dripped."""
    ((slowest_s,),) = run.watcher.rows(
        """SELECT COALESCE(max(EXTRACT(EPOCH FROM COALESCE(ended_at, clock_timestamp()) - accepted_at)), 0)::float8 FROM cases
           WHERE input->>'source' = 'uploads' AND accepted_at BETWEEN to_timestamp(%s) AND to_timestamp(%s)""",
        begun_at,
        ended_at - DELAYED_S,
    )
    return float(slowest_s)


def _count_given_up(run: Arena) -> int:
    ((count,),) = run.watcher.rows("SELECT count(*) FROM case_events WHERE code = 'source-timeout'")
    return int(count)
