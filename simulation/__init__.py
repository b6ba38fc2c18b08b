"""Tools of one machine, which are never bundled: engines, workbench, users' apps, operations."""
