"""A stored network in integers, for microcontrollers: what is computed, when and where (docs/MICRO_ARITHMETIC.md)."""
