"""One thread a process: small tensors gain nothing from more, and tests may run side by side."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch and BLAS are imported, here and in every process started
