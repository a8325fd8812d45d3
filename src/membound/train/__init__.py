"""Training under a memory bound: the updates, attach(), and the loop for one network."""
