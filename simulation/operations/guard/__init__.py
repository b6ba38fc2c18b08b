"""Flower's private parts that a deployment calls or replaces, in the releases from 1.36 on.

Each file says what Flower does, what fedsel does instead, and which feature of Flower would make the file unnecessary.
The page docs/flower-versions.md names the two other files that use private parts of Flower.
"""
