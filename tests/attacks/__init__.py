"""Attacks that once succeeded, each as a test that fails if its mend is taken away. README.md here lists them."""
