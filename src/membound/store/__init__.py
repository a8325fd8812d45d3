"""Storage formats and byte accounting. Nothing here imports torch."""
