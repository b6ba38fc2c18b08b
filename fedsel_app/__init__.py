"""Flower app: entry points, settings, messages, data, models, wire format, network, records and random streams."""
