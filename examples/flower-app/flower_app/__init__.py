"""A Flower / PyTorch app: a small CNN on scikit-learn's handwritten digits."""
