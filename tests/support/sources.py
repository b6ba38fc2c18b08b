"""Sources of the project: the root of its checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
