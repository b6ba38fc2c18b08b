"""Attacks that once succeeded, each as a test that fails if its mend is taken away. docs/security.md lists them."""
