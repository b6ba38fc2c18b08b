"""Records: everything that a run writes into its folder, and how it is read back."""
