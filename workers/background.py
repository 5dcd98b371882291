"""Threads that let the answering of cases go first."""

import os
import threading

from pipeline.observability.log import logger

NICE = 10
"""As `nice` counts: beside a thread of ordinary priority, a tenth of a core. Lower still, and a thread that the machine suspends
while it holds Python's lock is not resumed for long, and the model thread waits for the lock."""


def yield_to_all() -> None:
    """Give this thread, and the threads that it starts, a low priority. Linux keeps it for each thread."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    except OSError as error:
        logger().warning("priority_not_lowered", kind=type(error).__name__)
