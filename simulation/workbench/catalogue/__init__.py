"""Catalogue: what fedsel has, printed: settings and presets."""
