"""The Flower app: configuration, data, models, the wire format, and the server and client wiring."""
