"""Selection methods: one file each, its equations first and its strategy last."""
