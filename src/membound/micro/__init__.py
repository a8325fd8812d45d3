"""A stored network in integers, for microcontrollers: what is computed, when, and where it lies (docs/MICRO_ARITHMETIC.md)."""
