"""Words that users of other frameworks type for a setting, and the setting that fedsel suggests."""

import difflib
from collections.abc import Iterable

ALIASES = {
    "lr": "learning-rate client-lr local-lr eta step-size",
    "lr-decay": "learning-rate-decay decay lr-schedule scheduler",
    "batch-size": "batch bs b local-batch-size minibatch-size mini-batch-size",
    "local-epochs": "epochs epoch e local-epoch num-epochs client-epochs",
    "local-steps": "steps h iterations local-iterations num-steps local-updates",
    "preset": "config config-file configuration conf yaml",
    "rounds": "num-rounds t communication-rounds server-rounds num-server-rounds global-rounds max-rounds",
    "clients": "num-clients n-clients k num-supernodes num-partitions total-clients users num-users",
    "cohort": "clients-per-round num-selected selected-clients sample-size min-fit-clients min-train-nodes m",
    "data": "dataset data-set data-name",
    "data-path": "path data-dir data-root dataset-path root",
    "test-fraction": "test-size test-split test-ratio val-split validation-split",
    "partition": "split partitioner partitioning non-iid distribution heterogeneity",
    "alpha": "dirichlet-alpha dir-alpha concentration beta",
    "shards-per-client": "shards classes-per-client labels-per-client",
    "model": "network net architecture arch",
    "strategy": "method algorithm selection selector sampler client-selection",
    "mu": "proximal-mu prox-mu fedprox-mu proximal prox",
    "weight-decay": "wd l2 l2-regularization",
    "optimizer": "optimiser client-optimizer local-optimizer",
    "clip-norm": "grad-clip gradient-clip max-grad-norm clip clipping-norm",
    "compressor": "compression quantization quantizer sparsification",
    "kept-fraction": "sparsity compression-ratio compression-rate ratio topk top-k density",
    "value-bits": "bits num-bits quantization-bits precision-bits",
    "server-optimizer": "server-optimiser server-opt global-optimizer",
    "server-lr": "server-learning-rate global-lr global-learning-rate",
    "server-momentum": "global-momentum",
    "aggregation": "aggregator robust-aggregation defense defence",
    "dp-clip-norm": "dp-clip dp-norm",
    "dp-noise-multiplier": "dp dp-noise noise noise-multiplier epsilon dp-epsilon sigma privacy",
    "seed": "random-seed random-state rng-seed",
    "out": "output output-dir out-dir log-dir save-dir folder",
    "device": "gpu cuda use-gpu",
    "client-gpus": "num-gpus gpus",
    "eval-every": "eval-interval evaluate-every evaluation-interval eval-freq test-every",
    "target": "target-accuracy goal",
    "score": "metric main-metric",
    "task": "loss criterion loss-function",
    "class-weights": "class-weight",
    "checkpoint-every": "save-every checkpoint-interval save-interval",
    "client-failure-rate": "dropout dropout-rate straggler-rate stragglers",
    "round-deadline-s": "deadline timeout round-timeout",
    "engine": "backend simulator",
}
"""Setting -> other words for it."""
SHARES = [
    "fraction-fit",
    "fraction-train",
    "client-fraction",
    "participation-rate",
    "sample-fraction",
    "sampling-rate",
    "c",
]
"""Words for the share of the clients that a round selects. `cohort` is their number."""
CHOICES = {
    "cuda": "gpu",
    "dirichlet": "non-iid noniid niid lda skew skewed heterogeneous label-skew",
    "fashion-mnist": "fmnist fashion",
    "cifar10": "cifar",
    "image-folder": "imagefolder folder images",
    "mean": "fedavg avg average",
    "sgd": "fedavg",
}
"""Choice of a setting -> other words for it."""
SHORTEST_PART = 3
"""Smallest length of a word that is searched for within others."""
MEANT = {word: key for key, words in ALIASES.items() for word in words.split()}


def nearest_setting(key: str, keys: Iterable[str]) -> str:
    """Sentence on the `keys` setting that a user may mean by `key`; empty if none is similar."""
    keys, word = list(keys), key.strip("-").replace("_", "-").lower()
    if word in SHARES and "cohort" in keys:
        return "Did you mean 'cohort'? It is the number of clients in a round, not their share."
    meant = word if word in keys else MEANT.get(word)
    return f"Did you mean '{meant}'?" if meant in keys else did_you_mean(word, keys).strip()


def did_you_mean(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Question, after a space, that suggests the nearest `words` word or one that contains `word`; empty for none."""
    words = list(words)
    bare, dashed = _bare(word), word.lower().replace("_", "-")
    alike = [each for each in words if bare and (_bare(each) == bare or dashed in CHOICES.get(each, "").split())]
    if alike:
        return f" Did you mean '{alike[0]}'?"
    near = difflib.get_close_matches(word, words, n=1, cutoff=cutoff) if len(word) > 1 else []
    if not near and len(word) >= SHORTEST_PART:
        near = [each for each in words if word in each]
    return f" Did you mean '{near[0]}'?" if near else ""


def _bare(word: str) -> str:
    """Letters and digits of a word, in lower case."""
    return "".join(letter for letter in word.lower() if letter.isalnum())
