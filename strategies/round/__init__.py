"""Round: its parts, in the order in which `strategies.run_round` uses them, from connected clients to replies."""
