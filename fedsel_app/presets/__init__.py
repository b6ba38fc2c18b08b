"""Presets: named settings to start from, with a folder for each paper."""
