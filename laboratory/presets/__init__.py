"""Presets for a checkout: small versions of papers' experiments, those on data sets of papers, and other benchmarks."""

from pathlib import Path


def named(name: str) -> str:
    """What the setting `preset` takes for a preset of this name: the file of one of this folder, or the name."""
    return next((str(path) for path in Path(__file__).parent.glob(f"*/{name}.toml")), name)
