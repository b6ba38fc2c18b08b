"""Users' own Flower apps: fedsel's strategies for their servers, and fedsel's line for their clients."""
