"""fedsel under its own name: `fedsel.run`, `fedsel.compare`, and the lines for users' own Flower apps.

These are the public names of `fedsel_app`. Each is imported when it is first used, so this module loads neither torch
nor Flower.
"""

from typing import TYPE_CHECKING

from fedsel_app import __dir__ as __dir__
from fedsel_app import __getattr__ as __getattr__

if TYPE_CHECKING:
    from fedsel_app import ComparisonResult as ComparisonResult
    from fedsel_app import RunResult as RunResult
    from fedsel_app import client_app as client_app
    from fedsel_app import compare as compare
    from fedsel_app import load_comparison as load_comparison
    from fedsel_app import load_run as load_run
    from fedsel_app import run as run
    from fedsel_app import strategy as strategy
