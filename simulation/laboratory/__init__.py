"""Laboratory: claims, rankings, tuning, benchmarks, and presets and data sets of single papers. Nothing imports it."""
