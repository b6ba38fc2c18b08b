"""Network: links, simulated or measured, and the clock of a round."""
