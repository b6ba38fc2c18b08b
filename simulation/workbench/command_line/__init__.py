"""Command line: the parser, and arguments that several commands share."""
