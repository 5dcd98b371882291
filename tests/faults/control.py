"""A4, the control: the same kills on plain Celery with late acknowledgement and no ledger. The checker must find faults here."""

import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import UUID, uuid4

import psycopg2
import redis
from celery import Celery
from celery.signals import worker_ready

from pipeline.observability.log import configure_logs
from tests.faults.arena import Row, Tell
from tests.faults.checker import CaseRow, ResultRow, Seen, check
from tests.faults.history import Submit, answer_for, lines, read_history
from tests.faults.observe import Watcher
from tests.faults.processes import spawn
from tests.faults.servers import Place, Servers
from workers.settings import Settings
from workers.wiring import secret_of

TASK = "control.read"
QUEUE = "control"
VISIBILITY_S = 4
THREADS = 8
PAUSE_S = 0.02
MOST_WAITING = 400


def _app(redis_url: str) -> Celery:
    app = Celery("control", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        task_default_queue=QUEUE,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": VISIBILITY_S, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
    )
    return app


def serve_control(ready: Path) -> None:
    """Run a plain worker: the effect of a message is one row."""
    settings = Settings()
    configure_logs(level="info", style="json", process="control")
    app = _app(secret_of(settings, "redis_url"))
    url = secret_of(settings, "database_url").replace("+psycopg2", "")

    def read(case_id: str, key: str) -> None:
        connection = psycopg2.connect(url)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO effects VALUES (%s, %s)", (case_id, answer_for(key)))
        connection.close()

    app.task(name=TASK)(read)

    def say_ready(**_: object) -> None:
        ready.touch()

    worker_ready.connect(say_ready, weak=False)
    app.Worker(pool="threads", concurrency=THREADS, loglevel="WARNING", without_mingle=True, without_gossip=True, quiet=True).start()


def submit_control(cases: int, history: Path, stop: Path) -> None:
    """Send messages, as many as the queue may hold."""
    redis_url = secret_of(Settings(), "redis_url")
    app, client = _app(redis_url), redis.Redis.from_url(redis_url)
    with history.open("a", encoding="ascii", buffering=1) as sink:
        for _ in range(cases):
            while int(client.llen(QUEUE)) > MOST_WAITING and not stop.exists():
                time.sleep(PAUSE_S)
            if stop.exists():
                return
            case_id, began_at = uuid4(), time.time()
            app.send_task(TASK, kwargs={"case_id": case_id.hex, "key": case_id.hex})
            sink.write(lines([Submit(case_id, case_id.hex, began_at, time.time(), "ok")]))


def control(servers: Servers, tell: Tell, *, cases: int, kills: int) -> Row:
    """Kill the plain worker until cases are lost or doubled, or the kills are used up."""
    begun, place = time.monotonic(), servers.fresh("a4")
    watcher = Watcher(place.database_url)
    watcher.rows("CREATE TABLE effects (case_id uuid, digest text); SELECT 1")
    history, stop = place.folder / "history.jsonl", place.folder / "stop"
    load = spawn(submit_control, cases, history, stop, environment=place.environment(), log=place.folder / "load.log")
    moments, struck = random.Random(9), 0
    worker = _start(place)
    try:
        while struck < kills and load.is_alive():
            before = _effects(watcher)
            while _effects(watcher) == before and load.is_alive():
                time.sleep(PAUSE_S)
            time.sleep(moments.uniform(0.1, 1.0))
            worker.kill()
            worker.join()
            struck += 1
            tell(_effects(watcher), f"kill {struck} of {kills}")
            worker = _start(place)
        stop.touch()
        load.join()
        _drain(place, watcher, tell)
    finally:
        worker.kill()
        stop.touch()
        load.join()
    verdict = check(read_history(history), _as_seen(watcher, read_history(history)))
    watcher.close()
    found = verdict.lost + verdict.double
    shortfalls = () if found else ("the control lost and doubled nothing: the checker was not shown able to fail",)
    return Row("A4", "control: plain Celery, no ledger", struck, verdict, None, {}, 0, time.monotonic() - begun, shortfalls)


def _start(place: Place) -> BaseProcess:
    ready = place.folder / "control.ready"
    ready.unlink(missing_ok=True)
    process = spawn(serve_control, ready, environment=place.environment(), log=place.folder / "control.log")
    while not ready.exists():
        if process.exitcode is not None:
            raise RuntimeError((place.folder / "control.log").read_text()[-2000:])
        time.sleep(PAUSE_S)
    return process


def _effects(watcher: Watcher) -> int:
    ((count,),) = watcher.rows("SELECT count(*) FROM effects")
    return int(count)


def _drain(place: Place, watcher: Watcher, tell: Tell) -> None:
    """Wait until nothing is queued or in hand, and long enough for every redelivery."""
    with redis.Redis.from_url(place.redis_url) as client:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 2 * VISIBILITY_S:
            tell(_effects(watcher), "draining")
            if client.llen(QUEUE) or client.hlen("unacked"):
                quiet_since = time.monotonic()
            time.sleep(0.2)


def _as_seen(watcher: Watcher, history: list[Submit]) -> Seen:
    """Effects in the words of the checker: a case with an effect is completed, each effect a final result."""
    effects: dict[UUID, list[str]] = {}
    for case_id, digest in watcher.rows("SELECT case_id::text, digest FROM effects"):
        effects.setdefault(UUID(case_id), []).append(digest)
    at = {each.case_id: each.began_at for each in history}
    cases = [CaseRow(each, "completed", len(found), at[each], at[each]) for each, found in effects.items()]
    results = [ResultRow(each, number, "final", digest) for each, found in effects.items() for number, digest in enumerate(found, start=1)]
    return Seen(cases, results, [])
