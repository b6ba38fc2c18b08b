"""Settings of the partition: the split of the training examples among the clients, their test parts and the server."""

import math
from dataclasses import dataclass
from typing import Any

from fedsel_app.config.named_arguments import parse_named
from fedsel_app.config.plugins import unknown_name
from fedsel_app.config.settings import ConfigError, Settings, require, setting

UPSTREAM = "flwr:"
"""Beginning of a partition that is a partitioner of flwr-datasets."""
SIZE_FUNCTION = "partition_id_to_size_fn"
"""Argument of a partitioner that is a function."""
PARTITIONS = {
    "iid": "at random, as many for each",
    "dirichlet": "each class in shares drawn by Dirichlet(alpha)",
    "multi-dirichlet": "equal groups of clients, each with a concentration of its own (alphas)",
    "psi-lda": "a dominant class for each client, with probability psi, the rest IID",
    "missing-classes": "clients that lack missing-classes classes each",
    "shards": "shards-per-client runs of the examples in class order",
    "natural": "by the owners that the data set names",
    "own": "each client's data are all its own, in a deployment",
}
"""Partition of fedsel's own -> its meaning."""


@dataclass(frozen=True)
class PartitionConfig(Settings):
    """Partition: the split of the training examples among the clients, and of each client's into its two parts."""

    partition: str = setting(
        "dirichlet",
        "how the training examples are split among the clients",
        choices={
            **PARTITIONS,
            "flwr:NAME": "by a partitioner of flwr-datasets, such as flwr:DirichletPartitioner",
            "package.module:function": "by function(labels, clients, rng) of yours: each client's positions, a list",
        },
        closed=False,
    )
    partition_arguments: str = setting(
        "",
        "flwr:NAME: the partitioner's own arguments, such as alpha=0.5, self_balancing=true; num_partitions is "
        "`clients`, seed is `seed`, and partition_by is label, unless they stand here",
    )
    alpha: float = setting(0.5, "dirichlet: concentration; small is skewed", above=0.0)
    alphas: str = setting(
        "0.001,0.01,0.1,0.5,1", "multi-dirichlet: concentrations, one for each of as many equal groups of clients"
    )
    psi: float = setting(0.4, "psi-lda: probability of the client's dominant class; 0 is IID", low=0.0, high=1.0)
    client_examples: int = setting(0, "psi-lda in the code's form: examples that a client draws (0: n // K)", low=0)
    missing_classes: int = setting(40, "missing-classes: classes that each client lacks", low=0)
    partition_form: str = setting(
        "text",
        "as the paper's text has it, or as the authors' code does. psi-lda: random dominant classes, which run out;"
        " missing-classes: overlapping draws; (multi-)dirichlet: who holds n / K examples gets no more",
        choices=("text", "code"),
    )
    shards_per_client: int = setting(2, "shards: runs of the examples in class order that each client gets", low=1)
    min_examples: int = setting(1, "fewest training examples a client may hold", low=1)
    holdout_fraction: float = setting(
        0.0, "share of each client's own examples kept as its own test part", low=0.0, below=1.0
    )
    holdout_class_examples: int = setting(
        1, "fewest examples of a class at a client; where it has fewer, all of them stay in its training part", low=1
    )
    surrogate_examples: int = setting(
        0, "training examples that no client gets, for isp-loss surrogate: they are the server's surrogate set", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partition not in PARTITIONS and not self.partitioner and not self.function:
            raise unknown_name("partition", self.partition, PARTITIONS, "flwr:NAME or package.module:function")
        if self.partition_arguments and not self.partitioner:
            raise ConfigError(
                "The 'partition-arguments' are those of a partitioner of flwr-datasets: set 'partition' to flwr:NAME, "
                f"or leave them out. Got the partition {self.partition}."
            )
        _ = self.arguments
        try:
            valid = all(0.0 < alpha < math.inf for alpha in self.group_alphas)
        except ValueError:
            valid = False
        require(valid, "alphas", "numbers above 0 with commas between them", self.alphas)

    @property
    def partitioner(self) -> str:
        """Name of the partitioner of flwr-datasets; empty for fedsel's own partitions."""
        return self.partition.removeprefix(UPSTREAM) if self.partition.startswith(UPSTREAM) else ""

    @property
    def function(self) -> str:
        """Name of the user's own partition function, package.module:function; empty for all others."""
        return self.partition if ":" in self.partition and not self.partition.startswith(UPSTREAM) else ""

    @property
    def arguments(self) -> dict[str, Any]:
        """Name -> value in `partition-arguments`; that of `SIZE_FUNCTION` is package.module:function."""
        return parse_named(self.partition_arguments, "partition-arguments", 'alpha=0.5, partition_by="label"')

    @property
    def group_alphas(self) -> list[float]:
        """Concentrations in `alphas`."""
        return [float(alpha) for alpha in self.alphas.split(",")]
