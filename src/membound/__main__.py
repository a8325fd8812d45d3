"""The command, and `python -m membound`, and so `torchrun -m membound`."""

import sys


def start() -> None:
    """Run the command; Ctrl-C is answered in a line from the start, while most of it is still imported."""
    try:
        from membound.cli import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("membound: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    start()
