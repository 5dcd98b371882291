"""A real pool process with the stub's work that kills itself at a named point: `python -m ... POOL POINT`.

Without arguments, a nursery: for each line `POOL<tab>POINT` it forks such a worker, which has all its modules already,
and answers with how it ended.
"""

import os
import signal
import sys
from typing import Any

from pipeline.flow import Pool, doorbell_of
from tests.integration.workers.stub_work import COMMIT_AND_ACK, StubIntake, StubReporting
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolWork, run_stage


def main(pool: Pool, deadly: str) -> None:
    """Serve a pool until the point is passed; a point that there is not is never passed."""

    def passing(point: str) -> None:
        if point == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    with pool_runtime(pool, Settings(), connections=1) as runtime:
        work: PoolWork[Any] = StubIntake(runtime, passing) if pool is Pool.INTAKE else StubReporting(runtime, passing)

        def answer(**message: Any) -> None:
            run_stage(runtime, message, work)
            # The message is acknowledged when this returns.
            passing(COMMIT_AND_ACK)

        runtime.app.task(name=doorbell_of(pool))(answer)
        serve(runtime, threads=1)


def nurse() -> None:
    """Fork and bury workers until the input ends."""
    for line in sys.stdin:
        pool, point = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            # The answers go to standard output, and to nobody else's.
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            main(Pool(pool), point)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Pool(sys.argv[1]), sys.argv[2])
    else:
        nurse()
