"""Arguments and environment of Flower's command line; test_local_deployment.py submits real runs."""

import math
import os
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import ConfigError
from simulation.deployment.flower_cli import environment, to_toml, tool


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8")),
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec="utf-8")),
    )
)
def test_toml_is_read_back_as_it_was(values):
    read = tomllib.loads(to_toml(values))
    assert read == values
    assert {key: type(value) for key, value in read.items()} == {key: type(value) for key, value in values.items()}


def test_toml_keeps_dotted_keys_whole_and_writes_not_a_number():
    assert to_toml({"hetero-select.alpha": 1e-6}) == '"hetero-select.alpha" = 1e-06\n'
    assert math.isnan(tomllib.loads(to_toml({"x": math.nan}))["x"])


def test_environment_puts_this_python_first_and_installs_nothing(tmp_path):
    variables = environment(tmp_path)
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert variables["FLWR_HOME"] == str(tmp_path)
    assert variables["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_missing_program_is_named():
    with pytest.raises(ConfigError, match="no flower-nonesuch in"):
        tool("flower-nonesuch")
