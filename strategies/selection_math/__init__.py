"""Selection mathematics that several methods share: sampling, similarity, clustering, client times."""
