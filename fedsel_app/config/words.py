"""Words that users of other frameworks type for a setting, and the setting that they mean."""

import difflib
from collections.abc import Iterable

ALIASES = {
    "lr": "learning-rate client-lr local-lr eta step-size",
    "lr-decay": "learning-rate-decay decay lr-schedule scheduler",
    "batch-size": "batch bs local-batch-size minibatch-size mini-batch-size",
    "local-epochs": "epochs epoch local-epoch num-epochs client-epochs",
    "local-steps": "steps iterations local-iterations num-steps local-updates",
    "rounds": "num-rounds communication-rounds server-rounds num-server-rounds global-rounds max-rounds",
    "clients": "num-clients n-clients num-supernodes num-partitions total-clients users num-users",
    "cohort": "clients-per-round num-selected selected-clients sample-size min-fit-clients min-train-nodes k m",
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
    "seed": "random-seed random-state rng-seed",
    "out": "output output-dir out-dir log-dir save-dir folder",
    "device": "gpu cuda use-gpu",
    "client-gpus": "num-gpus gpus",
    "eval-every": "eval-interval evaluate-every evaluation-interval eval-freq test-every",
    "target": "target-accuracy goal",
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
"""Words for the share of the clients that a round selects, of which `cohort` is the number."""
MEANT = {word: key for key, words in ALIASES.items() for word in words.split()}


def nearest_setting(key: str, known: Iterable[str]) -> str:
    """Sentence on the setting of the `known` ones that a user means by `key`; empty where none is near."""
    known, word = list(known), key.strip("-").replace("_", "-").lower()
    if word in SHARES and "cohort" in known:
        return "Did you mean 'cohort'? It is the number of clients a round, not their share."
    meant = word if word in known else MEANT.get(word)
    if meant not in known:
        meant = next(iter(difflib.get_close_matches(word, known, n=1)), None)
    return f"Did you mean '{meant}'?" if meant else ""
