"""`python -m membound`, and so `torchrun -m membound`."""

from membound.cli import main

main()
