"""Flower's private parts: all that fedsel replaces or calls of them, in the releases from 1.36 on, and nowhere else.

Each file says of its part what Flower does there, what fedsel does instead, and what in Flower would replace it.
Everything outside this package uses Flower's public interface: `NumPyClient`, `Strategy`, `ServerApp`, `ClientApp`,
`run_simulation` and the commands; but for `clients/flower_messages.py`, as clients import nothing of `simulation`.
"""
