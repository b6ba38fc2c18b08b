"""Wire format: how an update becomes bytes, and back."""
