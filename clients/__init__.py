"""What runs on a client: local training, compression of the update, and the state that outlives a message."""
