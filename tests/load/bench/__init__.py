"""secondread beside the bare loop on the same machine: `python -m tests.load.bench`."""
