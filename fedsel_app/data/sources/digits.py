"""scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels, which come with the package.

E. Alpaydin, C. Kaynak: "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998 (its test
part), https://doi.org/10.24432/C50P49.
"""

import gzip
from importlib.metadata import distribution

import numpy as np
from numpy.typing import NDArray

FILE = "sklearn/datasets/data/digits.csv.gz"
LEVELS = 16
SIDE = 8


def read() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 8, 8), with grey levels 0 to 16 scaled to 0 to 255, and labels (n,), in the order of `load_digits`.

    The file is read without importing scikit-learn: the import would take longer than the rest of a small run's start.
    """
    with gzip.open(str(distribution("scikit-learn").locate_file(FILE)), "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    images = np.rint(table[:, :-1] * (255.0 / LEVELS)).astype(np.uint8)
    return images.reshape(-1, SIDE, SIDE), table[:, -1].astype(np.int64)
