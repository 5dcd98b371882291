"""While a batch runs, the head of the line is read: copies that confer no ownership and are dropped where they are not wanted.

On for CUDA devices. There a model thread waits for the device while a core is idle. On a CPU the same reading (a question to the
line, one to the ledger, a thread) takes the core that the forward pass runs on, and no gain was measured (decision 0010).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import SecondreadError
from pipeline.inference.read_ahead import ReadAhead
from pipeline.inference.runner import ModelRunner
from pipeline.observability.log import logger
from pipeline.persistence.ledger.prepared import model_inputs
from pipeline.persistence.waiting_line import WaitingLine
from pipeline.tensors.store import AnyArray
from schemas.tensor import TensorHandle
from workers.wiring import Services

PATIENCE_S = 0.01
"""Longest that a firing waits for a reading that is not over: it reads by itself what is missing."""


class Prefetch:
    """What one model thread reads ahead, model by model.

    Parameters
    ----------
    always
        Read ahead on a CPU too.
    """

    def __init__(self, services: Services, *, always: bool = False) -> None:
        self._services, self._always = services, always
        self._readings: dict[str, _Reading] = {}

    def taken(self, reference: str) -> ReadAhead:
        """What was read for a model since it last fired; the caller must let go of it."""
        reading = self._readings.pop(reference, None)
        return reading.taken() if reading else ReadAhead()

    @contextmanager
    def beside(self, line: WaitingLine, runner: ModelRunner, *, images: int) -> Iterator[None]:
        """Read as much of the line's head as `images` hold, in a thread, from now on; nobody waits for it."""
        if self._always or runner.stages_ahead:
            # What was read before and not fetched is not wanted any more.
            self.taken(runner.card.reference).let_go()
            self._readings[runner.card.reference] = _Reading(self._services, line, runner, images)
        yield


class _Reading:
    """One look at a line's head, in a thread of its own."""

    def __init__(self, services: Services, line: WaitingLine, runner: ModelRunner, images: int) -> None:
        self._services, self._line, self._runner, self._images = services, line, runner, images
        self._lock, self._is_wanted = threading.Lock(), True
        self._found = ReadAhead()
        self._thread = threading.Thread(target=self._work, name="read-ahead", daemon=True)
        self._thread.start()

    def taken(self) -> ReadAhead:
        """What was found, where it is complete; else nothing, and what is found later is dropped."""
        self._thread.join(PATIENCE_S)
        with self._lock:
            self._is_wanted = False
            found, self._found = self._found, ReadAhead()
        return found

    def _work(self) -> None:
        try:
            found = self._read()
        except (SecondreadError, RuntimeError) as error:
            # Nothing depends on it. A lost device shows in the model thread as well.
            logger().info("not_read_ahead", kind=type(error).__name__)
            return
        with self._lock:
            if self._is_wanted:
                self._found = found
                return
        found.let_go()

    def _read(self) -> ReadAhead:
        services = self._services
        head = self._line.view(limit=self._images, now=services.clock.unix_s()).waiting
        handles = model_inputs(services.ledger, [case.case_id for case in head])
        values: dict[TensorHandle, AnyArray] = {}
        images = 0
        for case_id, handle in handles.items():
            images += handle.shape[0]
            if images > self._images or not self._is_wanted:
                break
            values[handle] = services.tensors.get(handle, case_id=case_id)
        staged = self._runner.stage(list(values.values())) if values and self._runner.stages_ahead else None
        return ReadAhead(values, self._runner, staged)
