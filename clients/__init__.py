"""Flower clients: answers to the server, local training, compression, and state that outlives a message."""
