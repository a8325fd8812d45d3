"""What TensorFlow Lite Micro takes of RAM for a network, by its own interpreter on this machine."""

from tflite_micro.python.tflite_micro import runtime


def arena_of(file: bytes) -> int:
    """The least that the interpreter starts with, within 16 bytes."""
    low, high = 256, 1 << 24
    while high - low > 16:
        middle = (low + high) // 2
        try:
            runtime.Interpreter.from_bytes(file, arena_size=middle)
            high = middle
        except RuntimeError:
            low = middle
    return high
