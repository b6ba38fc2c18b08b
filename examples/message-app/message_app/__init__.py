"""A Flower / PyTorch app of the Message API: a small CNN on scikit-learn's handwritten digits."""
