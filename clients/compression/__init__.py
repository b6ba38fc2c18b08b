"""Compression of an update on the client: compressors, error feedback, and the curvature that scores entries."""
