"""Selection mathematics that several methods share: sampling, similarity of updates, client times."""
