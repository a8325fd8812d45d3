"""Storage formats, byte accounting and the model file (docs/FORMAT.md). Nothing here imports torch."""
