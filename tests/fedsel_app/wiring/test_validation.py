"""Methods that read classes are refused on data that have none."""

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.validation import validate_task
from strategies import STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES)
def test_methods_that_read_classes_refuse_data_without_them(name):
    config = resolve({"strategy": name})
    validate_task(config.strategy, config.method, "classification")
    for task in ("multi-label", "regression"):
        if name in ("hetero-select-stable", "fed-cbs", "hics-fl"):
            with pytest.raises(
                ConfigError,
                match=rf"another 'strategy'.* strategy {name} reads .*, and a {task} data set has no classes",
            ):
                validate_task(config.strategy, config.method, task)
        else:
            validate_task(config.strategy, config.method, task)
