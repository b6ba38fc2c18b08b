"""Users' Flower apps: fedsel's strategies for a user's ServerApp, with the user's own clients and model."""
