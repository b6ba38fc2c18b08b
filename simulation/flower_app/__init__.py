"""Own Flower apps: fedsel's strategies for a user's ServerApp, in front of the user's own clients and model."""
