"""What every test may take for granted, however the tests were started."""

import os
import signal

# Small tensors gain nothing from more threads, and tests may run side by side. Read when torch and BLAS are imported.
os.environ["OMP_NUM_THREADS"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
