"""The load of the article on the real pipeline: `python -m tests.load.article`."""
