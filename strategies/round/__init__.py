"""Round: its parts in the order in which `strategies.base` calls them, from connected clients to the record."""
