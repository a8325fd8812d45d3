"""The networks of the runtime's tests and the architectures of capture's serve here too."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / part) for part in ("run", "capture")]
