"""`python -m workers.gateway`."""

from workers.gateway.application import main

main()
