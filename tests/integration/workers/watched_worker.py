"""A real reporting process whose watchdog is impatient, and whose tasks take as long as their message says: `python -m ... SECONDS`."""

import sys
import threading

from pipeline.flow import Pool, doorbell_of
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings

THREADS = 2


def main(starved_after_s: float) -> None:
    """Serve the reporting pool."""

    def work(takes_s: float) -> None:
        threading.Event().wait(takes_s)

    with pool_runtime(Pool.REPORTING, Settings(), connections=1) as runtime:
        runtime.app.task(name=doorbell_of(Pool.REPORTING))(work)
        serve(runtime, threads=THREADS, starved_after_s=starved_after_s)


if __name__ == "__main__":
    main(float(sys.argv[1]))
