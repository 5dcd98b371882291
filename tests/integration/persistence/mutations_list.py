"""Places where the ledger can be broken, each by one exact string; see `mutations.py`."""

from dataclasses import dataclass
from pathlib import Path

LEDGER = Path("pipeline/persistence/ledger")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One place, and what is put there."""

    what: str
    module: str
    old: str
    new: str
    changes_nothing_because: str = ""
    """Why nobody can tell, where that is so."""


_OF_CLAIMS = [
    (
        "a hand-on is not fenced by the attempt",
        "WHERE cases.id = done.case_id AND cases.attempt = done.attempt AND state = :left",
        "WHERE cases.id = done.case_id AND state = :left",
    ),
    (
        "a hand-on does not ask where the case stands",
        "WHERE cases.id = done.case_id AND cases.attempt = done.attempt AND state = :left",
        "WHERE cases.id = done.case_id AND cases.attempt = done.attempt AND ended_at IS NULL",
    ),
    (
        "a hand-on gets no new doorbell number",
        "publish_no = nextval('publish_no'), published_at = now(), due_at = now()\n    FROM jsonb",
        "published_at = now(), due_at = now()\n    FROM jsonb",
    ),
    ("a hand-on keeps the tries", "SET state = :entered, tries = 0, strikes = 0,", "SET state = :entered, strikes = 0,"),
    (
        "a claim does not ask whether the lease ran out",
        "OR (state = :claimed AND lease_until < clock_timestamp()))\n    ORDER BY id",
        "OR state = :claimed)\n    ORDER BY id",
    ),
    ("a claim is given although the tries are spent", "WHERE id = ANY(:ids) AND tries < :max_tries", "WHERE id = ANY(:ids)"),
    ("a claim does not count the try", "attempt = attempt + 1, tries = tries + 1", "attempt = attempt + 1"),
    (
        "the end of a lapsed claim is not logged",
        "NULL, 'lease-expired', NULL, changed_at FROM moved WHERE is_lapsed",
        "NULL, 'lease-expired', NULL, changed_at FROM moved WHERE false",
    ),
    ("a claim logs the row's number and not the message's", "CAST(:seen_no AS bigint), changed_at", "publish_no, changed_at"),
    ("a stale worker renews another's lease", "ON cases.id = held.id AND cases.attempt = held.attempt", "ON cases.id = held.id"),
    (
        "a stale worker gives another's claim back",
        "WHERE cases.id = held.id AND cases.attempt = held.attempt AND claimed_by = :worker AND state = :left",
        "WHERE cases.id = held.id AND state = :left",
    ),
    (
        "a give-back is not fenced by the worker",
        "AND claimed_by = :worker AND state = :left",
        "AND state = :left",
        "an attempt is one worker's, and is asked for as well",
    ),
    ("the last attempt of all costs no more than a try", "WHEN cases.attempt >= :most_attempts THEN :max_tries WHEN", "WHEN"),
    ("a hand-on keeps the strikes", "tries = 0, strikes = 0, claimed_by", "tries = 0, claimed_by"),
    ("a lapsed lease is no strike", "strikes = strikes + CAST(is_lapsed AS integer), ", ""),
    ("a claim takes what waits for its retry", "(state = :queued AND due_at <= published_at) OR", "state = :queued OR"),
    ("a free return costs a try", "WHEN :is_free THEN tries - 1", "WHEN :is_free THEN tries"),
    ("a give-back is due at once", "due_at = now() + make_interval(secs => :delay_s)", "due_at = now()"),
]
_OF_OUTCOMES = [
    ("a completion is not fenced by the attempt", "WHERE id = case_id AND attempt = fence AND state", "WHERE id = case_id AND state"),
    (
        "a completion does not ask where the case stands",
        "AND attempt = fence AND state = :left AND result",
        "AND attempt = fence AND result",
    ),
    ("a completion does not ask which version stands", " AND result_version = answer_version - 1", ""),
    (
        "a completion leaves the answer marked as preliminary",
        "result_version = answer_version, is_preliminary = false,",
        "result_version = answer_version,",
    ),
    (
        "a completion is not logged",
        "SELECT id, version, :left, 'completed', attempt, :worker, outcome, changed_at FROM moved JOIN done ON id = case_id",
        "SELECT id, version, :left, 'completed', attempt, :worker, outcome, changed_at FROM moved JOIN done ON id = case_id WHERE false",
    ),
    (
        "a failure or a cancellation is not fenced by the attempt",
        "WHERE id = :case_id AND attempt = :attempt AND state = :left",
        "WHERE id = :case_id AND state = :left",
    ),
    (
        "a failure or a cancellation does not ask where the case stands",
        "WHERE id = :case_id AND attempt = :attempt AND state = :left",
        "WHERE id = :case_id AND attempt = :attempt",
    ),
    ("what was to be told before the end is told after it", "IN ('case.preliminary', 'case.deferred') AND", "IN ('case.deferred') AND"),
]
_OF_GUARD = [
    ("ended cases are owed an answer", "FROM cases WHERE ended_at IS NULL\n) AS open_cases", "FROM cases\n) AS open_cases"),
    (
        "a short deadline keeps the whole reserve",
        "LEAST(make_interval(secs => :reserve_s), (deadline_at - accepted_at) / 5)",
        "make_interval(secs => :reserve_s)",
    ),
    ("whoever stands long anywhere is owed an answer", "result_version = 0 AND state = :waiting AND", "result_version = 0 AND"),
    ("a case that is held is put off", "AND is_due AND state = ANY(:queued) AND lane", "AND is_due AND lane"),
    ("a case that was put off before is put off again", "AND state = ANY(:queued) AND lane <> 'compensation'", "AND state = ANY(:queued)"),
    (
        "the guard answers a case that has moved",
        "WHERE id = :case_id AND state = :state AND attempt = :attempt AND result",
        "WHERE id = :case_id AND attempt = :attempt AND result",
    ),
    (
        "the guard answers a case that was claimed since",
        "WHERE id = :case_id AND state = :state AND attempt = :attempt AND result",
        "WHERE id = :case_id AND state = :state AND result",
    ),
    ("the guard answers a case twice", "AND attempt = :attempt AND result_version = :seen_version AND", "AND attempt = :attempt AND"),
    (
        "an answer is not logged",
        "attempt, :reason, clock_timestamp() FROM moved\n), queued",
        "attempt, :reason, clock_timestamp() FROM moved WHERE false\n), queued",
    ),
    ("a case that is put off keeps its tries", "tries = CASE WHEN :is_put_off THEN 0 ELSE tries END", "tries = tries"),
    ("a case that is put off keeps its lane", "lane = CASE WHEN :is_put_off THEN 'compensation' ELSE lane END", "lane = lane"),
    ("a case is put off although its time is not over", "return self.is_due and self.state in QUEUED", "return self.state in QUEUED"),
    (
        "an answer restarts the wait",
        "CASE WHEN :is_put_off THEN clock_timestamp() ELSE changed_at END",
        "clock_timestamp()",
        "who was answered is not owed an answer for its wait any more, whatever the clock of its wait says",
    ),
    (
        "the guard asks only what it saw and not whether the case has ended",
        " AND result_version = :seen_version AND ended_at IS NULL",
        " AND result_version = :seen_version",
        "what it saw is an open state, and a case that has ended is in none",
    ),
]
_OF_COMPENSATION = [
    (
        "release ignores its limit",
        "ORDER BY accepted_at LIMIT :limit FOR UPDATE SKIP LOCKED",
        "ORDER BY accepted_at FOR UPDATE SKIP LOCKED",
    ),
    ("release sends the youngest first", "ORDER BY accepted_at LIMIT :limit FOR", "ORDER BY accepted_at DESC LIMIT :limit FOR"),
    (
        "release sends what a human has to look at",
        "AND ended_at IS NULL AND worklist_at IS NULL AND due_at",
        "AND ended_at IS NULL AND due_at",
    ),
    ("release sends before it is time", "AND worklist_at IS NULL AND due_at <= clock_timestamp()", "AND worklist_at IS NULL"),
    ("release does not count the try", "compensation_attempts = compensation_attempts + 1,", ""),
    (
        "a case is put off twice",
        "WHERE id = :case_id AND state = :state AND attempt = :attempt AND ended_at IS NULL",
        "WHERE id = :case_id AND ended_at IS NULL",
    ),
    ("a case is put off under a stale claim", "AND state = :state AND attempt = :attempt AND ended_at", "AND state = :state AND ended_at"),
    (
        "a case has one try too many before a human looks",
        "WHEN compensation_attempts >= :most OR",
        "WHEN compensation_attempts > :most OR",
    ),
    (
        "a case put off again keeps its holder",
        "tries = 0, claimed_by = NULL,\n           lease_until = NULL, changed_at",
        "tries = 0, changed_at",
    ),
    ("a retry does not give the tries back", "SET worklist_at = NULL, compensation_attempts = 0,", "SET worklist_at = NULL,"),
    ("a retry leaves the case with the human", "SET worklist_at = NULL, compensation_attempts = 0,", "SET compensation_attempts = 0,"),
    ("anybody may ask for a retry", "WHERE id = :case_id AND tenant_id = :tenant_id AND state", "WHERE id = :case_id AND state"),
    (
        "a retry moves a case that is under way",
        "AND state = 'deferred' AND ended_at IS NULL\n    RETURNING id, version, attempt\n",
        "AND ended_at IS NULL\n    RETURNING id, version, attempt\n",
    ),
    (
        "compensation waits for itself",
        "WHERE ended_at IS NULL AND lane <> 'compensation' AND state = ANY(:queued)",
        "WHERE ended_at IS NULL AND state = ANY(:queued)",
    ),
]
_OF_SWEEP = [
    (
        "a freed claim keeps its holder",
        "strikes = strikes + 1, claimed_by = NULL, lease_until = NULL, changed_at",
        "strikes = strikes + 1, changed_at",
    ),
    (
        "a claim is freed before its lease ran out",
        "ended_at IS NULL AND lease_until < clock_timestamp() AND tries",
        "ended_at IS NULL AND tries",
    ),
    (
        "a claim without tries is freed",
        "lease_until < clock_timestamp() AND tries < :max_tries\n    ORDER BY lease_until",
        "lease_until < clock_timestamp()\n    ORDER BY lease_until",
    ),
    ("a freed claim is not logged", "'lease-expired', changed_at FROM moved", "'lease-expired', changed_at FROM moved WHERE false"),
    ("urgent doorbells overtake routine ones", "for later in LANES[place:])", "for later in LANES)"),
    ("a doorbell is overtaken by its own number", " - CAST(:slack AS bigint)", ""),
    ("a young doorbell is overtaken", "published_at < clock_timestamp() - make_interval(secs => :after_s) AND due_at", "due_at"),
    ("a delayed doorbell is overtaken", "secs => :after_s) AND due_at <= published_at AND", "secs => :after_s) AND"),
    ("all doorbells are rung whatever their number", " AND publish_no <= CAST(:up_to_no AS bigint)", ""),
    (
        "a retry is rung before it is due",
        "due_at > published_at AND due_at <= clock_timestamp()\n      AND tries BETWEEN",
        "due_at > published_at\n      AND tries BETWEEN",
    ),
    ("a retry is rung without a token", "COALESCE((SELECT whole FROM budget), 0)", "CAST(:limit AS bigint)"),
    ("a living claim is set aside", "(state = :claimed AND lease_until < clock_timestamp()))\nLIMIT", "state = :claimed)\nLIMIT"),
    ("the lowest answered number counts", "max(case_events.publish_no) AS publish_no", "min(case_events.publish_no) AS publish_no"),
    ("the line is read from its beginning each time", " AND publish_no > CAST(:after_no AS bigint)", ""),
]

MUTATIONS = [
    Mutation(what, module, *rest)
    for module, entries in (
        ("claims.py", _OF_CLAIMS),
        ("outcomes.py", _OF_OUTCOMES),
        ("guard.py", _OF_GUARD),
        ("compensation.py", _OF_COMPENSATION),
        ("sweep.py", _OF_SWEEP),
    )
    for what, *rest in entries
]
