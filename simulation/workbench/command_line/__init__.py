"""Command line: the parser, arguments that several commands share, and the lists of settings and presets."""
