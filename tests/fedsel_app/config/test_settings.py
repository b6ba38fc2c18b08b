"""Settings: types, bounds, choices, sentences of refusal, and the groups that all methods share."""

import re
from dataclasses import dataclass, fields

import numpy as np
import pytest

from fedsel_app.config import (
    DECLARED,
    GROUPS,
    ConfigError,
    ISPConfig,
    ResidualConfig,
    RunConfig,
    Settings,
    SharedSettings,
    TrainingConfig,
    changes_numbers,
    read_groups,
    refuse_unknown,
    require,
    setting,
)
from fedsel_app.config.settings import SCOPES
from fedsel_app.data.batches import chunks
from strategies import STRATEGIES

EVERY_GROUP = [*GROUPS.values(), *(method.Config for method in STRATEGIES.values())]


@dataclass(frozen=True)
class Example(Settings):
    share: float = setting(0.5, "a share", low=0.0, below=1.0)
    positive: float = setting(1.0, "anything above 0", above=0.0)
    free: float = setting(0.0, "any number")
    level: int = setting(2, "a level", low=1, high=3)
    switch_on: bool = setting(True, "a switch")
    colour: str = setting("red", "a colour", choices=("red", "blue"))


def test_require_reports_the_name_the_requirement_and_the_value():
    require(True, "momentum", "in [0, 1)", 3)
    with pytest.raises(ConfigError) as error:
        require(False, "momentum", "in [0, 1)", 3)
    assert str(error.value) == "The 'momentum' parameter must be in [0, 1). Got 3."


@pytest.mark.parametrize(
    "key", ["local-steps", "local-epochs", "isp-warmup-epochs", "isp-draws", "probe-batches", "calibration-batches"]
)
def test_work_that_would_take_forever_is_refused(key):
    with pytest.raises(ConfigError, match=rf"'{key}' parameter must be in \[[01], 1e\+07\]. Got 1000000000."):
        read_groups({key: 10**9})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"share": 1.0}, "The 'share' parameter must be in [0, 1). Got 1."),
        ({"share": -0.5}, "The 'share' parameter must be in [0, 1). Got -0.5."),
        ({"share": float("nan")}, "The 'share' parameter must be in [0, 1). Got nan."),
        ({"positive": 0}, "The 'positive' parameter must be in (0, ∞). Got 0."),
        ({"positive": float("inf")}, "The 'positive' parameter must be in (0, ∞). Got inf."),
        ({"free": float("-inf")}, "The 'free' parameter must be in (-∞, ∞). Got -inf."),
        ({"level": 4}, "The 'level' parameter must be in [1, 3]. Got 4."),
        ({"level": 2.0}, "The 'level' parameter must be a whole number. Got 2.0."),
        ({"level": True}, "The 'level' parameter must be a whole number. Got True."),
        ({"share": True}, "The 'share' parameter must be a number. Got True."),
        ({"share": "0.5"}, "The 'share' parameter must be a number. Got '0.5'."),
        ({"switch-on": 1}, "The 'switch-on' parameter must be true or false. Got 1."),
        ({"colour": 5}, "The 'colour' parameter must be text. Got 5."),
        ({"colour": "green"}, "The 'colour' parameter must be one of red, blue. Got 'green'."),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(values, sentence):
    with pytest.raises(ConfigError) as error:
        Example.from_values(values)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"example-clip": 0.0}, None),
        ({"example-clip": 0.99}, "'example-clip' parameter must be 0 or at least 1. Got 0.99"),
        ({"loss-clip": 1.0}, None),
        ({"loss-clip": 0.01}, "'loss-clip' parameter must be 0 or at least 1. Got 0.01"),
        ({"ray-address": "auto"}, None),
        ({"ray-address": "auto", "workers": 1}, "leave it at 0. Got 1"),
        ({"engine": "ray", "workers": 1}, None),
        ({"engine": "inline"}, None),
        ({"engine": "inline", "workers": 1}, "The 'engine' inline has no workers"),
        ({"engine": "inline", "ray-address": "auto"}, "The 'engine' inline has no workers"),
        ({"metrics": "f1-macro, auroc"}, None),
        ({"metrics": "f1-macro, aurok"}, "Got 'aurok'. Did you mean 'auroc'?"),
        ({"track": "mlflow,wandb"}, None),
        ({"track": "mlflow,paper"}, "'track' parameter must be some of"),
        ({"clients": 5, "cohort": 5}, None),
        ({"clients": 5, "cohort": 6}, "'cohort' parameter must be at most 'clients' (5). Got 6"),
        ({"availability": "trace", "availability-trace": "a.csv"}, None),
        ({"availability": "trace"}, "Set 'availability-trace' to a file"),
        ({"uplink-min-bits-per-s": 5.0, "uplink-max-bits-per-s": 5.0}, None),
        ({"uplink-min-bits-per-s": 5.1, "uplink-max-bits-per-s": 5.0}, "must be at most 'uplink-max-bits-per-s'"),
        ({"spread": "log-normal", "step-min-s": 0.1, "step-max-s": 0.1}, None),
        ({"spread": "log-normal", "step-min-s": 0.0}, "Set 'step-min-s' above 0"),
        ({"spread": "table", "spread-table": "a.csv"}, None),
        ({"spread": "table"}, "Set 'spread-table' to a CSV file"),
        ({"alphas": "0.1, 2"}, None),
        ({"alphas": "0.1,0"}, "'alphas' parameter must be numbers above 0"),
        ({"alphas": "0.1,inf"}, "'alphas' parameter must be numbers above 0"),
        ({"alphas": "0.1,x"}, "'alphas' parameter must be numbers above 0"),
        ({"class-weights": "1,9"}, None),
        ({"class-weights": "1,0"}, "'class-weights' parameter must be balanced, or a number above 0"),
        ({"task": "a.b:C"}, None),
        ({"task": "a.b:"}, "'task' parameter must be package.module:Class"),
        ({"task": ":C"}, "'task' parameter must be package.module:Class"),
        ({"partition": "flwr:IidPartitioner", "partition-arguments": "a=1"}, None),
        ({"partition": "iid", "partition-arguments": "a=1"}, "Got the partition iid"),
        ({"partition": "iiid"}, "iid"),
        ({"data": "hf:owner/name", "data-path": ""}, None),
        ({"data": "hf:a/b/c"}, "hf:NAME or hf:OWNER/NAME"),
        ({"data": "hf"}, "needs the path of a folder"),
        ({"data": "csv"}, "needs the file's path"),
        ({"data": "mnist", "data-path": "x.csv"}, "does not read x.csv: set data=csv"),
        ({"data": "x.npz"}, "set data=npz and data-path=x.npz"),
    ],
)
def test_settings_of_a_group_that_do_not_fit_together(values, said):
    if said is None:
        read_groups(values)
        return
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_groups(values)


@pytest.mark.parametrize("bits", [3, 4, 5, 8, 9, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("key", ["probe-bits", "value-bits"])
def test_values_have_32_16_8_or_4_bits(key, bits):
    values = {key: bits, "compressor": "top-k"}
    if bits in (4, 8, 16, 32):
        assert bits in (read_groups(values)["evaluation"].probe_bits, read_groups(values)["compression"].value_bits)
    else:
        with pytest.raises(ConfigError, match=rf"The '{key}' parameter must be .*\. Got {bits}\."):
            read_groups(values)


def test_a_whole_number_is_accepted_as_a_number():
    made = Example.from_values({"share": 0, "free": -7})
    assert (type(made.share), made.share) == (float, 0.0)
    assert (type(made.free), made.free) == (float, -7.0)


def test_groups_read_only_their_own_keys():
    values = {"example.switch-on": False, "switch-on": True, "other": "x"}
    made = Example.from_values(values, "example.")
    assert made == Example(switch_on=False)
    assert made.values("example.")["example.switch-on"] is False
    assert set(Example.keys("example.")) == {
        f"example.{key}" for key in ("share", "positive", "free", "level", "switch-on", "colour")
    }


def test_unknown_keys_name_the_nearest_known_one():
    refuse_unknown(["lr"], ["lr", "momentum"])
    with pytest.raises(ConfigError, match=r"^There is no setting 'momentun'\. Did you mean 'momentum'\?$"):
        refuse_unknown(["lr", "momentun"], ["lr", "momentum"])
    with pytest.raises(ConfigError, match=r"^There is no setting 'xyz'\. `fedsel settings --all` lists all of them\.$"):
        refuse_unknown(["xyz"], ["lr", "momentum"])


def test_a_cohort_larger_than_the_federation_is_refused():
    assert RunConfig(clients=5, cohort=5).cohort == 5
    with pytest.raises(ConfigError) as error:
        RunConfig(clients=5, cohort=6)
    assert str(error.value) == "The 'cohort' parameter must be at most 'clients' (5). Got 6."


@pytest.mark.parametrize(("steps", "epochs"), [(0, 0), (50, 1)])
def test_steps_and_epochs_exclude_each_other(steps, epochs):
    with pytest.raises(ConfigError) as error:
        TrainingConfig(local_steps=steps, local_epochs=epochs)
    assert str(error.value).startswith("Exactly one of 'local-steps' and 'local-epochs' must be above 0. Now ")


def test_the_learning_rate_halves_over_the_run_and_stays_there():
    config = TrainingConfig(lr=0.05, lr_decay=0.5)
    rates = [config.learning_rate(server_round, rounds=10) for server_round in (0, 1, 5, 10, 20)]
    assert rates == pytest.approx([0.05, 0.0475, 0.0375, 0.025, 0.025])


def test_the_learning_rate_can_fall_in_steps():
    config = TrainingConfig(lr=0.08, lr_decay=0.0, lr_step_rounds=10, lr_step_factor=0.5)
    rates = [config.learning_rate(server_round, rounds=30) for server_round in (1, 10, 11, 20, 21, 30)]
    assert rates == [0.08, 0.08, 0.04, 0.04, 0.02, 0.02]


@pytest.mark.parametrize(
    ("steps", "momentum", "expected"),
    [(7, 0.0, 7.0), (1, 0.9, 1.0), (2, 0.9, 2.9), (5, 0.9, 13.1441), (3, 0.5, 1 + 1.5 + 1.75)],
)
def test_effective_steps_by_hand(steps, momentum, expected):
    assert TrainingConfig(momentum=momentum).effective_steps(steps) == pytest.approx(expected, rel=1e-6)


def test_effective_steps_of_very_many_steps_are_finite():
    assert TrainingConfig(momentum=0.9).effective_steps(10**9) == pytest.approx(10 * (10**9 - 9))


def test_local_steps_follow_from_the_settings_and_the_examples():
    assert TrainingConfig(local_steps=7).steps(10**9) == 7
    in_epochs = TrainingConfig(local_steps=0, local_epochs=2, batch_size=32)
    assert [in_epochs.steps(examples) for examples in (1, 32, 33)] == [2, 2, 4]
    assert TrainingConfig(local_steps=7, batch_size=32).steps(33, epochs=3) == 6


def test_a_last_mini_batch_of_too_few_examples_joins_the_one_before():
    """As `chunks` cuts them."""
    config = TrainingConfig(local_steps=0, local_epochs=1, batch_size=32)
    assert [config.passes(examples, 2) for examples in (1, 32, 33, 34, 65, 66)] == [1, 1, 1, 2, 2, 3]
    for examples in range(1, 200):
        assert config.passes(examples, 2) == len(chunks(np.arange(examples), 32, 2))


def test_the_residual_decays_faster_the_more_is_sent():
    assert [ResidualConfig().beta(fraction) for fraction in (0.0, 0.5, 1.0)] == pytest.approx([0.97, 0.91, 0.85])
    assert ResidualConfig(residual_decay="static").beta(0.5) == 0.9


def test_groups_are_read_and_written_by_their_names():
    settings = SharedSettings(**read_groups({"seed": 7, "isp-draws": 3, "oort.rule": "official"}))
    assert settings == SharedSettings(run=RunConfig(seed=7), isp=ISPConfig(isp_draws=3))
    assert settings == SharedSettings(**settings.groups())
    assert list(settings.groups()) == list(GROUPS)


@pytest.mark.parametrize("group", EVERY_GROUP, ids=lambda group: group.__name__)
def test_every_setting_has_a_meaning_and_a_default_of_its_type(group):
    for item in fields(group):
        assert type(item.default) is item.type, item.name
        assert item.metadata["meaning"].strip(), item.name
        assert item.metadata["meaning"][-1] not in ".\n", item.name
    assert group().values() == group.defaults()


def test_a_setting_describes_what_its_group_does_unless_it_says_otherwise():
    @dataclass(frozen=True)
    class Waiting(Settings, scope="place"):
        pause_s: int = setting(3, "seconds of a pause")
        cohort: int = setting(3, "number of clients", scope="server")

    @dataclass(frozen=True)
    class Longer(Waiting):
        rest_s: int = setting(3, "seconds of a rest")

    assert [entry.scope for entry in Longer.entries()] == [SCOPES["place"], SCOPES["server"], SCOPES["place"]]
    assert [entry.private for entry in Longer.entries()] == [(), (), ()]
    assert [entry.scope.numbers for entry in Waiting.entries()] == [False, True]


def test_where_a_run_takes_place_changes_no_number():
    place = {"out", "resume", "state-dir", "engine", "workers", "ray-address", "client-gpus", "checkpoint-every"}
    place |= {"connect-timeout-s", "min-available-clients", "enrol-timeout-s", "reply-timeout-s", "node-keys", "track"}
    assert {key for key in DECLARED if not changes_numbers(key)} == place | {"download", "changed-data"}
    assert changes_numbers("oort.rule")


@pytest.mark.parametrize("key", ["lr", "mu", "weight_decay"])
def test_numbers_that_float32_does_not_have_are_refused(key):
    """Every client failed: "value cannot be converted to type float without overflow"."""
    largest = float(np.finfo(np.float32).max)
    TrainingConfig(**{key: largest})
    with pytest.raises(ConfigError, match=f"'{key.replace('_', '-')}' parameter must be a number of float32"):
        TrainingConfig(**{key: np.nextafter(largest, np.inf).item()})
