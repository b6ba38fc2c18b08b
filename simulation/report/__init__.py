"""Reports: what people see of runs and comparisons, on the terminal and as a page."""
