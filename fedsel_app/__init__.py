"""The Flower app: entry points, settings, data, models, wire format, network and records."""
