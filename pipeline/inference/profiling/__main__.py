"""`python -m pipeline.inference.profiling FOLDER DEVICE THREADS SIZES SECONDS`: measure in a process of its own, tell on standard output.

How fast a process is depends on its environment (threads, memory allocation, visible devices), which must be set before it starts:
whoever starts this one gives it that of an inference process. One JSON object a line: `{"doing": ...}` while it works, and
last `{"card": ...}` or `{"refused": {"code", "title", "message", "advice"}}`.
"""

import json
import sys
from pathlib import Path

from pipeline.deadline import utc_now
from pipeline.errors import SecondreadError
from pipeline.inference.profiling.profile import Ask, profile


def main(folder: str, device: str, threads: str, sizes: str, seconds: str) -> None:
    """Measure and tell."""
    ask = Ask(device=device, threads=int(threads), sizes=tuple(int(size) for size in sizes.split(",")), seconds=float(seconds))
    try:
        card = profile(Path(folder), ask, at=utc_now(), tell=lambda doing: _say({"doing": doing}))
    except SecondreadError as error:
        _say({"refused": {"code": error.code, "title": error.title, "message": str(error), "advice": error.advice}})
    else:
        _say({"card": card.model_dump(mode="json")})


def _say(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
