"""Claims of the papers, one file each, stated before they are run and decided by paired seeds."""
