"""A Flower app of the Message API: LoRA adapters of a causal language model, on the roles of Shakespeare's plays."""
