"""Presets: they resolve, each small version is its preset at a smaller scale, and the values are in the papers."""

import re
import shlex
from pathlib import Path

import pytest

from fedsel_app.presets.preset import PROTOCOL_FILE, load_preset, preset_files
from fedsel_app.wiring.configuration import known_defaults, resolve
from laboratory import presets
from laboratory.data_sets import short_name
from laboratory.presets import named
from simulation.engines.idle_settings import refuse_idle
from simulation.workbench.command_line.parser import parse_grids, parse_setting
from tests.support.in_process import run_config
from tests.support.sources import ROOT

HERE = {path.stem: path for path in Path(presets.__file__).parent.rglob("*.toml") if path.name != PROTOCOL_FILE}
SMALL = [name for name in sorted(HERE) if name.endswith("-small")]
BIG = [name.removesuffix("-small") for name in SMALL]
AT_HAND = {"digits", "synthetic", "regression", "ecg"}
SAVING = {"isp-table-2-small", "isp-table-3-small", "isp-table-6-small", "isp-ablations-small"}
"""Small versions with the paper's number of clients, because a search needs them. Their data must be downloaded."""
OPTIONS = ("--set", "--grid")
SCALE = {
    *("data", "model", "augment", "clients", "cohort", "rounds", "target", "local-epochs", "batch-size", "lr"),
    *("moments", "client-examples", "min-examples", "missing-classes", "data-arguments", "calibration-batches"),
    "probe-batches",
    *("isp-interval", "isp-draws", "isp-step", "isp-warmup-rounds", "isp-warmup-epochs"),
    *("isp-loss", "surrogate-examples"),
    *("growth-first", "growth-last", "growth-every"),
    *("power-of-choice.candidates", "fedcor.warmup", "fedcor.interval", "fedcvr-bolt.warmup-rounds"),
}
"""Settings that a small version may change: sizes of all kinds, and the learning rate that suits them."""

SCENARIOS = {
    "terraform-cifar10-1": (50, 0.2, "0.001 0.01 0.1 0.5 1"),
    "terraform-cifar10-2": (50, 0.2, "0.001 0.002 0.005 0.01 0.5"),
    "terraform-cifar10-3": (50, 0.2, "0.001 0.002 0.005 0.01 0.1"),
    "terraform-fmnist-1": (50, 0.1, "0.001 0.002 0.005 0.01 0.5"),
    "terraform-fmnist-2": (50, 0.1, "0.001 0.002 0.005 0.01 0.2"),
    "terraform-fmnist-3": (50, 0.1, "0.001"),
    "terraform-fmnist-1-star": (50, 0.3, "0.001 0.002 0.005 0.01 0.5"),
    "terraform-fmnist-2-star": (50, 0.3, "0.001 0.002 0.005 0.01 0.2"),
    "terraform-fmnist-3-star": (50, 0.3, "0.001"),
    "terraform-fmnist-4": (100, 0.15, "0.1 0.1 0.1 0.3 0.3"),
    "terraform-fmnist-5": (100, 0.15, "0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5"),
    "terraform-cifar100": (250, 0.128, ""),
    "terraform-tiny-imagenet": (500, 0.058, ""),
    "terraform-femnist": (3597, 0.011, ""),
}
"""Terraform, Sec. 7, "Dataset Partitioning": clients, sampling rate and alphas."""

PRINTED = {
    # "K=100 clients, M=10 selected per round, H=50 local FedProx steps with mu=0.1, T=100 rounds, uplink U[1,5] Mb/s,
    # per-step compute time U[0.1,0.5] s" (Sec. V-C), and the hyperparameters of Sec. V-D
    "hetero-select-table-1": "data=cifar10 model=alexnet clients=100 cohort=10 local-steps=50 mu=0.1 rounds=100 "
    "uplink-min-bits-per-s=1e6 uplink-max-bits-per-s=5e6 step-min-s=0.1 step-max-s=0.5 psi=0.4 target=0.7 "
    "kept-fraction=0.2 kept-floor=0.08 kept-warmup-rounds=1 kept-cosine=0.4 hetero-select.diversity-weight=0.3 "
    "hetero-select.fairness-weight=0.2 hetero-select.staleness-weight=0.2 "
    "hetero-select.temperature=1.0 lr=0.05 clip-norm=2.0 server-momentum=0.5 curvature-layers=3",
    # "40 classes missing per client" (Sec. V-A), "54% on CIFAR-100" (Sec. V-C)
    "hetero-select-table-1-cifar100": "data=cifar100 model=resnet9 partition=missing-classes missing-classes=40 "
    "target=0.54 clients=100",
    # "80 classes missing per client" (Sec. V-A), "30% on TinyImageNet" (Sec. V-C)
    "hetero-select-table-3-tiny-imagenet": "data=tiny-imagenet model=resnet18 missing-classes=80 target=0.3",
    "hetero-select-table-3-mnist": "data=mnist model=logistic partition=psi-lda psi=0.4 clients=100 target=0.9",
    # "psi in {0,40,80,120} on Tiny-ImageNet" (Sec. V-D), "30%" (Fig. 2), "H=100", "37% FedCG target" (Fig. 5)
    "hetero-select-fig-2": "data=tiny-imagenet model=resnet18 missing-classes=80 local-steps=50 target=0.3 mu=0.1",
    "hetero-select-fig-5": "data=tiny-imagenet model=resnet18 missing-classes=80 local-steps=100 target=0.37",
    "hetero-select-stress": "link-coupling=inverted-loss psi=0.4 data=cifar10",
    # "50% participation", "mu=0.1" (Table I), "100 rounds and 5 epochs" (Sec. V-D), 12 clients (Fig. 2)
    "hetero-select-stable-table-1": "data=cifar10 model=resnet18 partition=dirichlet alpha=0.1 clients=12 cohort=6 "
    "rounds=100 local-epochs=5 solver=fedprox mu=0.1 hetero-select-stable.combination=additive "
    "hetero-select-stable.temperature=2.0",
    "hetero-select-stable-fig-7": "data=cifar10 model=resnet18 partition=dirichlet clients=12 cohort=6 mu=0.1",
    # "50 communication rounds and 2 local epochs"; "T=1.0, mu=0.01", gamma 0.7 and eta 0.3 (Table III)
    "hetero-select-stable-table-3": "rounds=50 local-epochs=2 mu=0.01 hetero-select-stable.temperature=1.0 "
    "hetero-select-stable.staleness-scale=0.7 hetero-select-stable.fairness-scale=0.3",
    # Tables 1 and 7; m = 20, D = 40, lambda = 10, alpha_1 = 0.8, alpha_2 = 0.2 (Sec. 4.2); 4 by 1 (App. A)
    "isp-table-2": "data=cifar10 model=resnet18 alpha=0.1 clients=100 cohort=20 optimizer=adam lr=0.003 batch-size=64 "
    "momentum=0.9 weight-decay=0.0 holdout-fraction=0.2 holdout-class-examples=4 isp-jury=same "
    "isp-smoothing-rule=code isp-form=code isp-warmup-rounds=7 isp-warmup-epochs=3 "
    "calibration-form=training isp-interval=20 isp-draws=10 isp-step=1 isp-momentum=0.5 "
    "power-of-choice.candidates=40 fed-cbs.exploration=10.0 delta.diversity-weight=0.8 delta.variance-weight=0.2",
    "isp-table-3": "data=tiny-imagenet model=swin-t alpha=0.5 optimizer=adamw lr=0.001 weight-decay=0.01 "
    "batch-size=256 clients=100",
    "isp-table-4": "model=resnet1d18 alpha=5.0 clients=2000 cohort=400 isp-interval=20 isp-draws=20 isp-step=20 "
    "data-arguments=hz=500 positive-weights=client "
    "isp-momentum=0.5 optimizer=adam lr=0.003 batch-size=128",
    # "TOPK and RANDK with K equal to 5% and 15%" (Sec. 4.4); alpha = 1000 (Table 1)
    "isp-table-6": "alpha=1000.0 compressor=top-k kept-fraction=0.05",
    # "from m=5 to m=20 every 50 rounds" (App. B.4)
    "isp-ablations": "growth-every=50.0 growth-last=20 participation=isp",
    # "initially set to 0.001 and decreases every 10 iterations with a decay factor of 0.5. The global communication
    # rounds is set to 200. The number of local epochs is set to 2 and the size of a mini-batch is set to 64" (Setup)
    # "decreases every 10 iterations with a decay factor of 0.5": HiCS-FL's code, whose settings these are, never does
    "terraform-fmnist-1": "data=fashion-mnist optimizer=sgd lr=0.001 lr-decay=0.0 lr-step-rounds=0 momentum=0.9 "
    "rounds=200 local-epochs=2 batch-size=64 mu=0.1 partition-form=code terraform.min-clients=4 terraform.count=rounds",
    "terraform-cifar10-1": "model=cnn5 optimizer=adam lr=0.001 lr-decay=0.0 lr-step-rounds=0 momentum=0.9 rounds=500 "
    "local-epochs=2 batch-size=64 partition-form=code terraform.count=rounds",
    "terraform-cifar100": "model=cnn5-wide partition=dirichlet alpha=0.1 rounds=100 lr=0.001 optimizer=adam",
    "terraform-tiny-imagenet": "model=resnet18 alpha=0.1 rounds=100 lr=0.01 optimizer=adam",
    # "SGD optimizer with a learning rate of 0.01, local epochs of 5, and a mini-batch size of 32" (Setup)
    "terraform-femnist": "model=cnn4 partition=natural optimizer=sgd lr=0.01 local-epochs=5 batch-size=32",
    # K=100, T=100, P=10, S=10 local SGD steps (Sec. 4.1); batch size 100, 0.01 (App. B.1)
    "fedcvr-bolt-table-1": "data=regression model=linear 'data-arguments=clusters=2, clients=100' clients=100 "
    "cohort=10 rounds=100 local-steps=10 batch-size=100 lr=0.01",
    # S=10 local epochs, alpha_1=0.8, alpha_2=1, alpha_3=0, beta=1 (App. B.1), 30 rounds of uniform selection (App. B.2)
    "fedcvr-bolt-table-2-synthetic": "data=synthetic 'data-arguments=alpha=1.0, beta=1.0, clients=100' "
    "rounds=100 local-epochs=10 active-fl.excluded=0.8 active-fl.sharpness=1.0 active-fl.uniform=0.0 "
    "active-fl.valuation=current power-of-choice.loss=test power-of-choice.candidates=0 "
    "fedcvr-bolt.inverse-temperature=1.0 fedcvr-bolt.warmup-rounds=30",
    "fedcvr-bolt-table-2-mnist": "data=mnist model=mlp partition=dirichlet alpha=0.1 rounds=200 "
    "fedcvr-bolt.coordinates=0",
    "fedcvr-bolt-table-2-cifar10": "data=cifar10 alpha=0.1 rounds=100 fedcvr-bolt.coordinates=300",
}  # fmt: skip
"""Preset -> settings, copied from the papers."""


def text(name: str) -> str:
    return (HERE | preset_files())[name].read_text(encoding="utf-8")


def full(name: str) -> dict[str, object]:
    settings = load_preset(named(name)).settings
    return known_defaults() | settings | {"data": short_name(str(settings["data"]))}


def commands(name: str) -> list[str]:
    """Commands in the comments of a preset. Continued lines are joined, and options follow the command above them."""
    comments = "\n".join(re.findall(r"^# ?(.*)$", text(name), re.MULTILINE))
    joined = re.sub(r"\\\n *", "", comments).splitlines()
    found, above = [], ""
    for line in joined:
        if re.search(r"--(strategies|grid|set) ", line):
            above = line if line.startswith("fedsel ") else above
            found.append(line if line is above else f"{above} {line}")
    return found


@pytest.mark.parametrize("name", SMALL)
def test_a_small_version_differs_in_scale_alone(name):
    big, small = full(name.removesuffix("-small")), full(name)
    assert {key for key in big if big[key] != small[key]} <= SCALE
    assert small["data"] in AT_HAND or (name in SAVING and small["data"] == "fashion-mnist")
    assert int(str(small["rounds"])) < int(str(big["rounds"]))
    assert int(str(small["clients"])) <= (100 if name in SAVING else 50)


@pytest.mark.parametrize("name", BIG + SMALL)
def test_the_commands_of_a_preset_can_be_run(name):
    for line in commands(name):
        file = named(name).removeprefix(f"{ROOT}/")
        assert set(re.findall(r"--preset (\S+)", line)) <= {file}, line
        fixed, grids = ([word.strip("'") for word in re.findall(rf"{option} ('.*?'|\S+)", line)] for option in OPTIONS)
        fixed = dict(map(parse_setting, fixed))
        points = [(key, value) for key, values in parse_grids(grids).items() for value in values]
        runs = [
            resolve({"preset": file} | ({"strategy": strategy} if strategy else {}) | fixed | dict([point])).values()
            for strategy in ",".join(re.findall(r"--strategies (\S+)", line)).split(",")
            for point in points or [("seed", 1)]
        ]
        refuse_idle([*fixed, *dict(points)], runs)


@pytest.mark.parametrize("name", PRINTED)
def test_values_are_those_of_the_papers(name):
    expected = dict(parse_setting(pair) for pair in shlex.split(PRINTED[name]))
    assert {key: full(name)[key] for key in expected} == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_terraform_scenarios(name):
    clients, rate, alphas = SCENARIOS[name]
    config = resolve({"preset": named(name)})
    assert (config.run.clients, config.run.cohort) == (clients, round(rate * clients))
    if alphas:
        groups = [float(alpha) for alpha in alphas.split()]
        assert config.partition.partition == "multi-dirichlet"
        assert config.partition.group_alphas in (groups, groups * 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SMALL) - SAVING))
def test_every_small_preset_runs_to_its_end(name, tmp_path):
    config = resolve({"preset": named(name)})
    _, rows = run_config(tmp_path, config)
    assert rows[-1].get("method_round", len(rows)) == config.run.rounds
    assert all(not row["failures"] for row in rows)
    assert (tmp_path / "summary.json").exists()
