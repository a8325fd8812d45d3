"""What pytest needs to know before it collects: modules whose dependency is absent are left out."""

import importlib.util

collect_ignore = []
if importlib.util.find_spec("triton") is None:  # only torch builds for GPUs bring it
    collect_ignore += ["src/membound/train/projection_triton.py", "src/membound/zoo/lrn_triton.py"]
if not any(map(importlib.util.find_spec, ("lightning", "pytorch_lightning"))):
    collect_ignore.append("src/membound/train/lightning.py")
