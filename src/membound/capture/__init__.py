"""A trained torch module becomes a graph and its weights."""

from membound.capture.capture import capture

__all__ = ["capture"]
