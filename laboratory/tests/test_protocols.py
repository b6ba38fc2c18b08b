"""Protocols: a preset departs from its protocol only where it lists this, and a test notices any other value."""

import io
import re
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.presets.preset import PROTOCOL_FILE, preset_files
from fedsel_app.wiring.configuration import known_defaults
from laboratory import presets, protocols
from laboratory.presets import named
from laboratory.protocols import (
    Departure,
    Protocol,
    departure_tables,
    differences,
    load_paper_preset,
    protocol_of,
    read_protocol,
    resolved,
)

HERE = [path.stem for path in sorted(Path(presets.__file__).parent.rglob("*.toml")) if path.name != PROTOCOL_FILE]
PRESETS = [name for name in [*preset_files(), *HERE] if name not in ("recommended", "masked")]
"""Presets of papers; `recommended` and `masked` follow none."""
OF_METHODS = [f"{name} {method}" for name in PRESETS for method in load_paper_preset(named(name)).methods or {}]
"""Presets of the runs of single methods: "preset method"."""
ALWAYS = {
    *("strategy", "data", "model", "partition", "clients", "cohort", "rounds", "local-steps", "local-epochs"),
    *("batch-size", "optimizer", "lr", "lr-decay", "lr-step-rounds", "momentum", "weight-decay", "solver"),
    *("compressor", "server-optimizer", "weighting"),
}
"""Settings that every protocol has a value for."""
OWN_PIPELINE = {"mu", "compressor", "error-feedback", "curvature-layers", "weighting", "server-optimizer"}
"""Settings that the protocol of every compared method has a value for."""
OF_PARTITION = {
    "dirichlet": {"alpha"},
    "dirichlet-by-client": {"alpha"},
    "multi-dirichlet": {"alphas"},
    "psi-lda": {"psi", "client-examples", "partition-form"},
    "missing-classes": {"missing-classes", "partition-form"},
    "natural": set(),
    "shards": set(),
}
"""Partition -> the settings that it reads."""


def complaints(settings, preset, protocol):
    """One sentence for each of `settings` with a missing, wrong or needless departure in the list of `preset`."""
    departing = differences(settings, protocol)
    listed = preset.departures
    missing = [key for key in departing if key not in listed]
    stale = [key for key in listed if key not in departing]
    wrong = [key for key in departing if key in listed and listed[key].ours != settings[key]]
    return [
        *(f"{key} is {settings[key]!r}, the protocol's {protocol.value(key)!r}, and not listed" for key in missing),
        *(f"{key} is listed as a departure, and is none" for key in stale),
        *(f"{key} is {settings[key]!r}, and listed as {listed[key].ours!r}" for key in wrong),
    ]


@pytest.fixture(autouse=True)
def defaults_once(monkeypatch):
    monkeypatch.setattr(protocols, "known_defaults", cache(known_defaults))


@cache
def preset_of(name):
    """Preset with this name, or the preset of one of its methods ("preset method")."""
    preset, _, method = name.partition(" ")
    return load_paper_preset(named(preset)).of_method(method) if method else load_paper_preset(named(preset))


@cache
def protocol_and_settings(name):
    """Protocol of `preset_of` this name, and the values of all its settings."""
    return protocol_of(preset_of(name)), resolved(preset_of(name))


def test_presets_depart_from_their_protocols_where_they_say_so_and_nowhere_else():
    for name in PRESETS + OF_METHODS:
        preset, (protocol, settings) = preset_of(name), protocol_and_settings(name)
        assert preset.protocols, name
        assert complaints(settings, preset, protocol) == [], name


def test_a_protocol_names_training_cohort_and_partition_and_where_it_is_printed():
    for name in PRESETS:
        protocol, _ = protocol_and_settings(name)
        assert protocol.values.keys() >= ALWAYS | OF_PARTITION[str(protocol.values["partition"])], name
        assert re.search(r"Table|Fig\.", protocol.cite), name
        assert "Sec. " in protocol.cite or "App. " in protocol.cite, name
        assert all(entry.why for entry in load_paper_preset(named(name)).departures.values()), name


def test_the_protocol_of_a_compared_method_is_its_own_papers():
    for name in OF_METHODS:
        preset, method = name.split()
        shared = load_paper_preset(named(preset))
        file, table = shared.of_method(method).protocols[-1]
        own = read_protocol(file, table)
        assert own.values["strategy"] == method, name
        assert own.values.keys() >= OWN_PIPELINE | shared.methods[method].settings.keys(), name
        assert re.search(r"arXiv:\d{4}\.\d{5}\b.*(Algorithm|abstract)", own.cite), name
        assert protocol_and_settings(preset)[0].cite != protocol_and_settings(name)[0].cite == own.cite, name


def test_a_preset_lists_anew_what_it_sets_anew(tmp_path):
    (tmp_path / "protocol.toml").write_text(
        '[one]\ncite = "Table 1"\nlr = 0.1\n[one.hetero-select]\ntemperature = 2.0\n[two]\nbase = "one"\nlr = 0.2\n',
        encoding="utf-8",
    )
    (tmp_path / "first.toml").write_text(
        'protocol = "one"\nlr = 0.3\nmu = 0.5\n[[departures]]\nwhy = "a"\nlr = 0.3\nmu = 0.5\n', encoding="utf-8"
    )
    (tmp_path / "second.toml").write_text('base = "first.toml"\nprotocol = "two"\nlr = 0.4\n', encoding="utf-8")
    first, second = (load_paper_preset(str(tmp_path / name)) for name in ("first.toml", "second.toml"))
    assert first.departures == {"lr": Departure(0.3, "a"), "mu": Departure(0.5, "a")}
    assert second.departures == {"mu": Departure(0.5, "a")}
    assert protocol_of(first) == Protocol("Table 1", {"lr": 0.1, "hetero-select.temperature": 2.0})
    assert protocol_of(second) == Protocol("Table 1", {"lr": 0.2, "hetero-select.temperature": 2.0})


def test_wrong_protocols_and_departures_are_refused(tmp_path):
    path = tmp_path / "protocol.toml"
    path.write_text("[one]\nlearning = 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="names learning, and that is no setting"):
        read_protocol(path, "one")
    with pytest.raises(ConfigError, match=r"Did you mean 'one'\?"):
        read_protocol(path, "ones")
    (tmp_path / "a.toml").write_text("[[departures]]\nlr = 0.3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"Each entry of \[\[departures\]\] in the preset .* must have a 'why'"):
        load_paper_preset(str(tmp_path / "a.toml"))


@pytest.mark.parametrize("names", [PRESETS[::6], pytest.param(PRESETS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_departures_of_a_preset_are_shown_in_80_columns(names):
    for name in names:
        preset, shown = load_paper_preset(named(name)), io.StringIO()
        for table in departure_tables(preset):
            Console(file=shown, width=80).print(table)
        lines = shown.getvalue().splitlines()
        assert max(map(len, lines), default=0) <= 80, name
        rows = {line.split()[0] for line in lines if line}
        for one in [name, *(f"{name} {method}" for method in preset.methods or {})]:
            assert rows >= preset_of(one).departures.keys(), name
