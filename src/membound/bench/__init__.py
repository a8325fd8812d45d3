"""A network against the dense runtimes that are installed: latency, load time, memory, file size."""
