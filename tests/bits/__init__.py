"""Bits of whole runs: sha256 of models and rounds, kept in a table that no change of the code may move unsaid."""
