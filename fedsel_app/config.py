"""Typed settings: small frozen dataclasses, checked when they are built.

Every setting is one flat key, the same for ``fedsel run``, ``flwr run`` and ``fedsel deploy``:
the field's name with dashes for underscores (``local-steps``), and before it the method's name
where the setting belongs to one method (``hetero-select.diversity-weight``).
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self

Value = bool | int | float | str
"""What Flower's run configuration can hold."""


class ConfigError(ValueError):
    """A setting, or a combination of settings, that cannot be run; the message says what to do."""


def require(condition: bool, name: str, requirement: str, got: object) -> None:
    """Raise ConfigError("The 'name' parameter must be `requirement`. Got `got`.") unless met."""
    if not condition:
        raise ConfigError(f"The '{name}' parameter must be {requirement}. Got {got!r}.")


def setting(
    default: Value,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one setting: its default, what it means (with its unit), and what it may be.

    `low` and `high` are closed bounds, `above` and `below` open ones.
    """
    bounds = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"doc": doc, "choices": choices, "bounds": bounds})


@dataclass(frozen=True)
class Settings:
    """A group of settings. Building one checks every field's type, bounds and choices."""

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name.replace("_", "-"), type(item.default), item.metadata, getattr(self, item.name))

    @classmethod
    def keys(cls, prefix: str = "") -> dict[str, str]:
        """Setting key -> field name."""
        return {prefix + item.name.replace("_", "-"): item.name for item in fields(cls)}

    @classmethod
    def defaults(cls, prefix: str = "") -> dict[str, Value]:
        """Setting key -> default value."""
        return {
            prefix + item.name.replace("_", "-"): item.default for item in fields(cls) if item.default is not MISSING
        }

    @classmethod
    def documentation(cls, prefix: str = "") -> dict[str, str]:
        """Setting key -> what it means."""
        return {prefix + item.name.replace("_", "-"): item.metadata["doc"] for item in fields(cls)}

    @classmethod
    def from_values(cls, values: Mapping[str, Value], prefix: str = "") -> Self:
        """Pick this group's keys out of `values`; absent ones keep their defaults."""
        types = {item.name: type(item.default) for item in fields(cls)}
        picked = {name: values[key] for key, name in cls.keys(prefix).items() if key in values}
        for name, value in picked.items():
            if types[name] is float and type(value) is int:
                picked[name] = float(value)
        return cls(**picked)

    def values(self, prefix: str = "") -> dict[str, Value]:
        """Setting key -> value."""
        return {key: getattr(self, name) for key, name in self.keys(prefix).items()}


def _check(key: str, expected: type, metadata: Mapping[str, Any], value: object) -> None:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    require(type(value) is expected, key, names[expected], value)
    if metadata["choices"]:
        require(value in metadata["choices"], key, "one of " + ", ".join(metadata["choices"]), value)
    if isinstance(value, int | float) and expected is not bool:
        bounds = metadata["bounds"]
        inside = bounds["low"] <= value <= bounds["high"] and bounds["above"] < value < bounds["below"]
        if not inside:
            shown = int(value) if float(value).is_integer() else value
            require(inside, key, "in " + _interval(**bounds), shown)


def _interval(low: float, high: float, above: float, below: float) -> str:
    left = f"({above:g}" if above >= low else f"[{low:g}"
    right = f"{below:g})" if below <= high else f"{high:g}]"
    return f"{left}, {right}".replace("(-inf", "(-∞").replace("inf)", "∞)")


def refuse_unknown(values: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a key that no group has, naming the nearest known one."""
    known = list(known)
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else " `fedsel settings` lists all of them."
            raise ConfigError(f"There is no setting '{key}'.{hint}")


@dataclass(frozen=True)
class RunConfig(Settings):
    """The run as a whole."""

    strategy: str = setting("hetero-select", "selection method, or package.module:Class")
    model: str = setting("logistic", "architecture, or package.module:function")
    rounds: int = setting(20, "communication rounds T", low=1)
    clients: int = setting(20, "clients K", low=1)
    cohort: int = setting(5, "clients selected a round, M", low=1)
    seed: int = setting(42, "seed of everything that is drawn", low=0)
    eval_every: int = setting(1, "rounds between evaluations of the global model on the test set", low=1)
    client_eval: bool = setting(False, "evaluate the global model on every client's own test part as well")
    target: float = setting(
        0.9,
        "test accuracy (multi-label: G-mean; regression: R^2) whose round, seconds and bytes are reported",
        above=0.0,
        high=1.0,
    )
    probe_batches: int = setting(8, "mini-batches of a loss probe, where a method needs one", low=1)
    workers: int = setting(0, "Ray actors that train side by side (0: one for each core)", low=0)
    ray_address: str = setting(
        "", "Ray cluster that simulates, HOST:PORT or auto, one actor for each of its CPUs (empty: Ray on this machine)"
    )
    threads: int = setting(1, "torch threads of each client", low=1)
    eval_threads: int = setting(2, "torch threads of the server's evaluation; clients are idle then", low=1)
    client_gpus: float = setting(0.0, "share of a GPU each Ray actor takes", low=0.0)
    device: str = setting("auto", "where clients train", choices=("auto", "cpu", "cuda", "mps"))
    connect_timeout_s: int = setting(120, "seconds to wait for all clients to connect", low=1)
    round_deadline_s: float = setting(
        0.0, "seconds of a round's training after which clients have failed, on the clock of `links` (0: none)", low=0.0
    )
    over_selection: float = setting(
        0.0, "share of the cohort that trains beside it; the first of all that come back count", low=0.0
    )
    min_returned: int = setting(1, "usable replies below which a round changes nothing", low=1)
    client_failure_rate: float = setting(
        0.0, "probability that a selected client's reply is lost, in simulations of failures", low=0.0, high=1.0
    )
    share_label_counts: bool = setting(True, "clients tell their examples of each class, where a method needs them")
    stop_at_target: bool = setting(False, "end the run in the round that reaches the target")
    checkpoint_every: int = setting(10, "rounds between checkpoints, from which a run can go on (0: none)", low=0)
    resume: bool = setting(False, "go on with the run in `out` from its last checkpoint")
    tensorboard: bool = setting(False, "write TensorBoard's event files into the run folder")
    out: str = setting("", "run folder (empty: runs/ in the working directory)")
    state_dir: str = setting(
        "", "folder of a deployed client's residuals (empty: the temporary directory); a simulation keeps them in `out`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort > self.clients:
            raise ConfigError(f"The 'cohort' parameter must be at most 'clients' ({self.clients}). Got {self.cohort}.")
        if self.ray_address and self.workers:
            raise ConfigError(
                "With 'ray-address' the cluster's CPUs say how many 'workers' there are; leave that at 0. "
                f"Got {self.workers}."
            )
        if self.min_returned > self.clients:
            raise ConfigError(
                f"The 'min-returned' parameter must be at most 'clients' ({self.clients}). Got {self.min_returned}."
            )


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """Local training of one client in one round."""

    local_steps: int = setting(50, "local SGD steps H a round (0: use local-epochs)", low=0)
    local_epochs: int = setting(0, "passes over the client's data a round (0: use local-steps)", low=0)
    batch_size: int = setting(32, "examples a step", low=1)
    lr: float = setting(0.05, "local learning rate in round 0", above=0.0)
    lr_decay: float = setting(
        0.5, "share of lr lost linearly over the run: lr (1 - lr-decay min(t/T, 1))", low=0.0, high=1.0
    )
    lr_step_rounds: int = setting(0, "rounds after each of which lr is multiplied by lr-step-factor (0: never)", low=0)
    lr_step_factor: float = setting(0.5, "what lr is multiplied by every lr-step-rounds", above=0.0, high=1.0)
    optimizer: str = setting(
        "sgd", "how a local gradient becomes a step; it remembers nothing of earlier rounds",
        choices=("sgd", "adam", "adamw"),
    )  # fmt: skip
    momentum: float = setting(0.9, "local momentum of sgd; of adam and adamw the decay beta1", low=0.0, below=1.0)
    weight_decay: float = setting(0.0, "L2 penalty of the local steps (adamw: decay apart from the gradient)", low=0.0)
    solver: str = setting(
        "fedprox",
        "what the local steps descend, and what clients and server remember for it",
        choices=("fedprox", "sgd", "scaffold", "feddyn", "fednova"),
    )
    mu: float = setting(0.1, "proximal coefficient of the solver fedprox; 0 is plain SGD", low=0.0)
    feddyn_alpha: float = setting(0.1, "regularisation coefficient of the solver feddyn", above=0.0)
    clip_norm: float = setting(
        2.0, "largest norm of a local gradient, the solver's terms included (0: no clipping)", low=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.local_steps > 0) == (self.local_epochs > 0):
            raise ConfigError("Exactly one of 'local-steps' and 'local-epochs' must be above 0.")

    @property
    def proximal(self) -> float:
        """The pull towards the weights that the client received: mu of fedprox, alpha of feddyn, else 0."""
        return {"fedprox": self.mu, "feddyn": self.feddyn_alpha}.get(self.solver, 0.0)

    def learning_rate(self, server_round: int, rounds: int) -> float:
        """Learning rate of round t of T: eta_0 (1 - decay min(t/T, 1)), times factor^floor((t - 1) / step-rounds)."""
        steps = max(server_round - 1, 0) // self.lr_step_rounds if self.lr_step_rounds else 0
        return self.lr * (1.0 - self.lr_decay * min(server_round / rounds, 1.0)) * self.lr_step_factor**steps


@dataclass(frozen=True)
class CompressionConfig(Settings):
    """How a client thins its update before it uploads it."""

    compressor: str = setting(
        "top-k",
        "the largest entries, random ones that the seed tells, all of them on a random grid, or all as they are",
        choices=("top-k", "rand-k", "qsgd", "none"),
    )
    value_bits: int = setting(
        32,
        "bits of each value that is sent: 32 (float32), 16 (float16), 8 or 4; error feedback takes up the rounding,"
        " and without it 8 and 4 bits are rounded at random; qsgd-levels says it for qsgd",
        low=4,
        high=32,
    )
    top_k_scope: str = setting(
        "global", "the kept fraction holds over the model, or in each layer", choices=("global", "layer")
    )
    qsgd_levels: int = setting(16, "levels s of qsgd", low=1, high=32767)
    qsgd_bucket: int = setting(128, "entries that share a norm in qsgd", low=1)
    error_feedback: bool = setting(True, "keep what was not sent and add it to the next update")
    error_feedback_scheme: str = setting(
        "ef14",
        "ef14 adds what was not sent to the next update; ef21 sends the change of an estimate that both sides keep",
        choices=("ef14", "ef21"),
    )
    residual_decay: str = setting("adaptive", "decay of what was not sent", choices=("adaptive", "static"))
    residual_decay_static: float = setting(0.9, "the static decay beta", low=0.0, high=1.0)
    residual_decay_min: float = setting(0.85, "adaptive decay beta at kept fraction 1", low=0.0, high=1.0)
    residual_decay_max: float = setting(0.97, "adaptive decay beta at kept fraction 0", low=0.0, high=1.0)
    kept_rounding: str = setting(
        "ceil", "kept entries: ceil(theta N) or max(1, floor(theta N))", choices=("ceil", "floor")
    )
    curvature_layers: int = setting(
        3, "layers a round whose entries are scored by v^2 / |H| (0: magnitude only)", low=0
    )
    curvature_scale: str = setting(
        "literal", "|H| as it is, or divided by its layer's mean", choices=("literal", "layer-mean")
    )
    curvature_floor: float = setting(1e-6, "smallest |H| (literal: |H| is clamped there)", above=0.0)
    curvature_explore: float = setting(0.2, "share of the layer draw that is uniform", low=0.0, high=1.0)
    layer_importance: str = setting(
        "mask-share",
        "the rest of the draw: the layer's share of the last mask, or the share of the layer that was kept",
        choices=("mask-share", "kept-share"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.value_bits in (32, 16, 8, 4), "value-bits", "32, 16, 8 or 4", self.value_bits)

    @property
    def lossless(self) -> bool:
        """Whether the update is sent as it is."""
        return self.compressor == "none" and self.value_bits == 32

    @property
    def sparsifies(self) -> bool:
        """Whether the kept fraction says how much is sent."""
        return self.compressor in ("top-k", "rand-k")

    @property
    def ef21(self) -> bool:
        """Whether client and server keep an estimate of the client's update."""
        return self.error_feedback and self.error_feedback_scheme == "ef21"

    @property
    def remembers_unsent(self) -> bool:
        """Whether what was not sent is added to the next update."""
        return self.error_feedback and not self.ef21 and not self.lossless

    def beta(self, kept_fraction: float) -> float:
        """Residual decay of a round whose average kept fraction is theta_t (paper: Eq. 9)."""
        if self.residual_decay == "static":
            return self.residual_decay_static
        return self.residual_decay_min + (self.residual_decay_max - self.residual_decay_min) * (1.0 - kept_fraction)
