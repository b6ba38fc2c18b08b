"""Models: architectures, flat parameter vectors, tasks and their scores, and devices."""
