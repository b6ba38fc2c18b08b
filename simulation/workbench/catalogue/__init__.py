"""Catalogue: what fedsel has, printed: settings, presets, and the protocols that presets follow."""
