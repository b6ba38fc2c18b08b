"""Laboratory: claims of the papers, rankings and benchmarks. It is never installed, and nothing imports it."""
