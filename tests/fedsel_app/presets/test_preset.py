"""Presets: all are packed, and a preset starts from its base."""

import re
import tomllib
from pathlib import Path

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.presets.preset import FOLDER, PROTOCOL_FILE, load_preset, preset_files
from fedsel_app.wiring.configuration import resolve
from tests.support.sources import ROOT


def test_every_preset_is_packed_into_the_wheel_and_those_of_papers_into_the_flower_app():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = project["setuptools"]["package-data"]["fedsel_app"]
    of_package: set[Path] = {path for pattern in patterns for path in (ROOT / "fedsel_app").glob(pattern)}
    packed = {path for path in of_package if path.suffix == ".toml" and path.name != PROTOCOL_FILE}
    assert packed == set(preset_files().values())
    assert of_package >= {path.with_name(PROTOCOL_FILE) for path in packed if path.is_relative_to(FOLDER / "isp")}
    assert "fedsel_app/**" in project["flwr"]["app"]["fab-include"]


def test_a_preset_starts_from_its_base(tmp_path):
    (tmp_path / "first.toml").write_text('base = "paper"\nrounds = 3\nlr = 0.5\n', encoding="utf-8")
    (tmp_path / "second.toml").write_text('base = "first.toml"\nlr = 0.25\n', encoding="utf-8-sig")
    expected = load_preset("paper").settings | {"rounds": 3, "lr": 0.25}
    assert load_preset(str(tmp_path / "second.toml")).settings == expected
    assert resolve({"preset": str(tmp_path / "second.toml"), "rounds": 9}).run.rounds == 9


def test_other_data_do_not_inherit_the_arguments_of_the_data_of_the_base(tmp_path):
    (tmp_path / "base.toml").write_text('data = "own:load"\ndata-arguments = "alpha=0.5"\npartition = "iid"\n')
    (tmp_path / "other.toml").write_text('base = "base.toml"\ndata = "digits"\n')
    (tmp_path / "same.toml").write_text('base = "base.toml"\nclients = 7\n')
    resolved = {name: resolve({"preset": str(tmp_path / f"{name}.toml")}).data for name in ("base", "other", "same")}
    found = {name: data.data_arguments for name, data in resolved.items()}
    assert found == {"base": "alpha=0.5", "other": "", "same": "alpha=0.5"}
    assert resolve({"preset": str(tmp_path / "same.toml"), "data": "cifar10"}).data.data_arguments == ""


def test_bases_that_lead_nowhere_are_refused(tmp_path):
    for name, base in (("a", '"b.toml"'), ("b", '"a.toml"'), ("c", '"papr"'), ("d", "3"), ("e", '"none.toml"')):
        (tmp_path / f"{name}.toml").write_text(f"base = {base}\n", encoding="utf-8")
    (tmp_path / "f.toml").write_text('preset = "paper"\n', encoding="utf-8")
    messages = {
        "f": f"Write base = 'paper' at the top of the preset {tmp_path / 'f.toml'}: 'preset' is not read there.",
        "a": f"The preset {tmp_path / 'a.toml'} starts from itself through 'base': remove one 'base' of this circle.",
        "d": f"The 'base' of the preset {tmp_path / 'd.toml'} must be the name of another preset. Got 3.",
        "e": f"There is no preset file {tmp_path / 'none.toml'}.",
    }
    for name, message in messages.items():
        with pytest.raises(ConfigError, match=re.escape(message)):
            load_preset(str(tmp_path / f"{name}.toml"))
    with pytest.raises(ConfigError, match=r"Did you mean 'paper'\?"):
        load_preset(str(tmp_path / "c.toml"))
