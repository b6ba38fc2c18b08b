"""Flower app: entry points, settings, messages, data, models, wire format, network, records and random streams."""

import os
import resource
import sys

if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
    # Python writes as much of a module's bytecode as fits, and cannot import the module any more after that.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
