"""A stored network in integers, for microcontrollers: what is computed, when, where it lies; docs/MICRO.md has the rules."""
