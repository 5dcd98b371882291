"""Threads that yield to all others of this machine."""

import os
import threading

from pipeline.observability.log import logger

LOWEST_PRIORITY = 19
"""As `nice` counts: beside a thread of ordinary priority, a seventieth of a core."""


def yield_to_all() -> None:
    """Give this thread, and the threads that it starts, the lowest priority. Linux keeps it for each thread."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
    except OSError as error:
        logger().warning("priority_not_lowered", kind=type(error).__name__)
