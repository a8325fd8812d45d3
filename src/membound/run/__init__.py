"""The network as deployed: load a file, plan memory, run. Needs numpy and the compiled core, never torch."""

from membound.run.net import Memory, Net, load

__all__ = ["Memory", "Net", "load"]
