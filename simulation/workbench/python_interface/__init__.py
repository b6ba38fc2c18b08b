"""Python interface: runs and comparisons as functions of their settings, and their results as data frames."""
