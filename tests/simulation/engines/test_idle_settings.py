"""A setting that cannot have an effect under the other settings is refused with a sentence."""

from contextlib import nullcontext

import pytest
import tomli_w

from fedsel_app.config import GROUPS, ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.engines.idle_settings import refuse_idle
from simulation.workbench.comparison.plan import plan
from strategies import STRATEGIES

ENTRIES = {entry.key: entry for group in GROUPS.values() for entry in group.entries()} | {
    entry.key: entry for name, method in STRATEGIES.items() for entry in method.Config.entries(f"{name}.")
}
SEARCHES = {"participation": "isp", "holdout-fraction": 0.2}
SURROGATE = {"isp-loss": "surrogate", "surrogate-examples": 100}

REFUSED = [
    (
        SEARCHES | SURROGATE | {"isp-jury": "subset"},
        "With isp-loss=surrogate, 'isp-jury' has no effect: leave it out, or set isp-loss=clients.",
    ),
    (
        SEARCHES | {"isp-smoothing": 1.0, "isp-smoothing-rule": "code"},
        "With isp-smoothing=1.0, 'isp-smoothing-rule' has no effect: leave it out, or set another isp-smoothing.",
    ),
    (
        {"compressor": "none", "value-bits": 8, "error-feedback": False, "residual-decay-static": 0.5},
        "With error-feedback=false, 'residual-decay-static' has no effect: leave it out, or set error-feedback=true.",
    ),
    (
        {"task": "mine:Task", "class-weights": "1,2"},
        "With task=mine:Task, 'class-weights' has no effect: leave it out, or set no task.",
    ),
    *(
        (
            given,
            f"Leave '{[*given][-1]}' out: no method here measures losses before it selects, or none by this setting.",
        )
        for given in (
            {"strategy": "random", "probe-bits": 8},
            {"strategy": "hetero-select", "hetero-select.loss-source": "last-fit", "probe-bits": 8},
            {"strategy": "fedcor", "probe-batches": 2},
        )
    ),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_cannot_have_an_effect_is_refused(given, sentence):
    with pytest.raises(ConfigError) as error:
        refuse_idle(given, [resolve(given).values()])
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    "given",
    [
        {"preset": "isp-ablations", "isp-loss": "clients", "isp-jury": "subset"},
        {"compressor": "none", "value-bits": 8, "error-feedback": False},
        {"data": "hf:mnist", "image-size": 8},
        {"data": "mine:load", "test-fraction": 0.5},
        {"strategy": "fedcor", "probe-bits": 8},
        {"strategy": "random", "link-coupling": "inverted-loss", "probe-batches": 2},
    ],
)
def test_its_neighbours_are_not(given):
    refuse_idle(given, [resolve(given).values()])


PRESETS = {
    'isp-jury = "subset"\n': "'isp-jury' has no effect",
    'participation = "isp"\nholdout-fraction = 0.2\nisp-loss = "clients"\nisp-jury = "subset"\n': "",
    'base = "isp-ablations"\nisp-loss = "clients"\nisp-jury = "subset"\n': "",
    'base = "isp-ablations"\nparticipation = "fixed"\n': "",
    'strategy = "random"\n[methods.delta]\nisp-jury = "subset"\n': "",
    "[methods.random]\nisp-momentum = 0.5\n": "'isp-momentum' has no effect",
}


@pytest.mark.parametrize(("text", "sentence"), PRESETS.items())
def test_a_preset_of_the_users_is_refused_if_nothing_reads_it(tmp_path, text, sentence):
    """Only the settings of the command line were looked at. What the base sets for other runs is not the user's."""
    file = str(tmp_path / "q.toml")
    (tmp_path / "q.toml").write_text(text)
    given = {"preset": file, "strategy": "random"}
    with pytest.raises(ConfigError, match=f"q.toml: With .*{sentence}") if sentence else nullcontext():
        refuse_idle(given, [resolve(given).values()], file)
    with pytest.raises(ConfigError, match=sentence) if sentence else nullcontext():
        plan(tmp_path / "compared", ["random"], [1], {"preset": file}, {})


def test_a_file_of_every_setting_chooses_none(tmp_path):
    """A comparison writes one for each of its runs, with settings that the run does not read."""
    values = resolve({"strategy": "random", "isp-jury": "subset"}).values()
    (tmp_path / "q.toml").write_text(tomli_w.dumps(values))
    given = {"preset": str(tmp_path / "q.toml")}
    refuse_idle(given, [resolve(given).values()], str(tmp_path / "q.toml"))


def test_what_a_preset_reads_may_be_turned_off_on_the_command_line(tmp_path):
    (tmp_path / "q.toml").write_text('participation = "isp"\nholdout-fraction = 0.2\nisp-momentum = 0.5\n')
    given = {"preset": str(tmp_path / "q.toml"), "strategy": "random", "participation": "fixed"}
    refuse_idle(given, [resolve(given).values()], str(tmp_path / "q.toml"))


def test_a_grid_is_refused_if_none_of_its_runs_reads_it(tmp_path):
    settings, juries = {"preset": "isp-ablations", "surrogate-examples": 100}, {"isp-jury": ["same", "subset"]}
    with pytest.raises(ConfigError, match="With isp-loss=surrogate, 'isp-jury' has no effect"):
        plan(tmp_path, ["random"], [1], settings | SURROGATE, juries)
    assert len(plan(tmp_path, ["random"], [1], settings, juries | {"isp-loss": ["clients", "surrogate"]}).runs) == 4
    with pytest.raises(ConfigError, match="With compressor=none and qsgd, 'kept-fraction' has no effect"):
        plan(tmp_path, ["random"], [1], {"kept-fraction": 0.1}, {"compressor": ["none", "qsgd"]})
    assert plan(tmp_path, ["delta", "random"], [1], {"delta.draws": "distinct"}, {}).runs
    with pytest.raises(ConfigError, match="Leave 'probe-bits' out"):
        plan(tmp_path, ["delta", "random"], [1], {}, {"probe-bits": [8, 32]})
    assert plan(tmp_path, ["oort", "hetero-select"], [1], {}, {"probe-bits": [8, 32]}).runs


@pytest.mark.parametrize("key", [key for key, entry in ENTRIES.items() if entry.read_by])
def test_declarations_name_settings_and_values_that_exist(key):
    assert key in ENTRIES
    for conditions in ENTRIES[key].read_by:
        assert key not in conditions
        for owner, reading in conditions.items():
            for value in reading.values:
                if not str(value).endswith(":"):
                    ENTRIES[owner].check(value)
