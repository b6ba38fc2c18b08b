"""Flower's private parts: everything private that fedsel calls or replaces, in the releases from 1.36 on.

Each file says what Flower does, what fedsel does instead, and which feature of Flower would make the file unnecessary.
All other code uses Flower's public interface alone: `NumPyClient`, `Strategy`, `ServerApp`, `ClientApp`,
`run_simulation` and the commands.
"""
