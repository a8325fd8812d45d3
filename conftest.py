"""What pytest needs to know before it collects: how many random examples, and modules whose dependency is absent."""

import importlib.util

from hypothesis import settings
from profiles import FEW

# The few are the same every time, so that a failure belongs to the change at hand. Looking for new ones, and
# remembering them, is for `make test-full`: pytest --hypothesis-profile=full.
settings.register_profile("few", max_examples=FEW, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=100, deadline=None, print_blob=True)
settings.load_profile("few")

collect_ignore = []
if importlib.util.find_spec("triton") is None:  # only torch builds for GPUs bring it
    collect_ignore += ["src/membound/train/projection_triton.py", "src/membound/zoo/lrn_triton.py"]
if not any(map(importlib.util.find_spec, ("lightning", "pytorch_lightning"))):
    collect_ignore.append("src/membound/train/lightning.py")
