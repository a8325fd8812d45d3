"""The architectures and the interpreter of capture's tests serve here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "capture"))
