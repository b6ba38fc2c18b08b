"""Settings of local training: the loss, steps, optimizer and solver, with the traits of each solver."""

import math
from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, having, meanings, require, setting

FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127
"""Largest number of float32, in which clients compute."""


@dataclass(frozen=True, kw_only=True)
class SolverTraits:
    """Local solver: the objective of a client's steps, and the state that clients and server keep for it.

    Attributes
    ----------
    meaning : its objective
    title : its name in a sentence
    pull : key of the setting with its proximal coefficient, the pull towards the received weights; empty: it has none
    keeps_state : each client keeps a vector between rounds, and the server their mean
    control_variates : the server sends its mean with the model, and each reply has a second payload with the change of
        the client's vector
    reports : numbers that clients report with their updates: values of `fedsel_app.messages.scalars.Report`
    needs_plain_sgd : it derives a gradient from the change of the weights, which only plain SGD allows
    needs_whole_updates : the server must receive each update uncompressed
    needs_updates_of_one_round : the server must not receive sums of updates of several rounds
    own_server_step : the server makes the solver's own step, to which a server optimizer must add nothing
    averages_updates_only : the server averages nothing but the updates, so that a robust aggregation protects it
    private : the proof of differential privacy holds for it (docs/security.md)
    """

    meaning: str
    title: str
    pull: str = ""
    keeps_state: bool = False
    control_variates: bool = False
    reports: tuple[str, ...] = ()
    needs_plain_sgd: bool = False
    needs_whole_updates: bool = False
    needs_updates_of_one_round: bool = False
    own_server_step: bool = False
    averages_updates_only: bool = False
    private: bool = False


SOLVERS = {
    "fedprox": SolverTraits(
        title="FedProx",
        meaning="the loss plus mu / 2 times the squared distance from the global model",
        pull="mu",
        averages_updates_only=True,
        private=True,
    ),
    "sgd": SolverTraits(title="SGD", meaning="the loss", averages_updates_only=True, private=True),
    "scaffold": SolverTraits(
        title="SCAFFOLD",
        meaning="the loss, with gradients corrected by the control variates of client and server",
        keeps_state=True,
        control_variates=True,
        needs_plain_sgd=True,
    ),
    "feddyn": SolverTraits(
        title="FedDyn",
        meaning="the loss, a linear term that the client keeps, and feddyn-alpha / 2 times the squared distance from"
        " the global model",
        pull="feddyn-alpha",
        keeps_state=True,
        needs_whole_updates=True,
        own_server_step=True,
    ),
    "fednova": SolverTraits(
        title="FedNova",
        meaning="the loss; the server normalises each update by the client's effective steps",
        reports=("effective_steps",),
        needs_plain_sgd=True,
        needs_updates_of_one_round=True,
    ),
}
"""Values of the setting `solver`."""


@dataclass(frozen=True)
class TrainingConfig(Settings, scope="training", private=True):
    """Local training: the steps, the optimizer and the solver of a client in a round."""

    local_steps: int = setting(
        50,
        "number of local SGD steps in a round, H; set 0 to use local-epochs instead",
        low=0,
        high=10_000_000,
        first=True,
        scope="server",
    )
    local_epochs: int = setting(
        0,
        "number of passes over the data of a client in a round; above 0 it needs local-steps=0",
        low=0,
        high=10_000_000,
        first=True,
        scope="server",
    )
    batch_size: int = setting(32, "number of examples in a mini-batch", low=1, first=True, scope="server")
    lr: float = setting(0.05, "local learning rate at the start of the run", above=0.0, first=True, scope="server")
    lr_decay: float = setting(
        0.5,
        "share of lr that is lost by the end of the run, linearly: lr (1 - lr-decay min(t/T, 1)) in round t of T",
        low=0.0,
        high=1.0,
        scope="server",
    )
    lr_step_rounds: int = setting(
        0, "number of rounds after which lr is halved, again and again; 0 never halves it", low=0, scope="server"
    )
    optimizer: str = setting(
        "sgd",
        "local optimizer; its state is reset in every round",
        choices={"sgd": "SGD with momentum", "adam": "Adam", "adamw": "Adam with decoupled weight decay"},
        first=True,
    )
    momentum: float = setting(0.9, "local momentum of sgd; the decay beta1 of adam and adamw", low=0.0, below=1.0)
    weight_decay: float = setting(
        0.0, "coefficient of the L2 penalty in local steps (adamw: of its decoupled weight decay)", low=0.0
    )
    solver: str = setting(
        "fedprox",
        "objective of the local steps, and the state that clients and server keep for it",
        choices=meanings(SOLVERS),
        first=True,
        private=having(SOLVERS, lambda solver: solver.private),
        scope="server",
    )
    mu: float = setting(
        0.1,
        "proximal coefficient of the solver fedprox; 0 is plain SGD",
        low=0.0,
        first=True,
        read_by={"solver": having(SOLVERS, lambda solver: solver.pull == "mu")},
    )
    feddyn_alpha: float = setting(
        0.1,
        "regularisation coefficient of the solver feddyn",
        above=0.0,
        private=(0.1,),
        read_by={"solver": having(SOLVERS, lambda solver: solver.pull == "feddyn-alpha")},
    )
    clip_norm: float = setting(
        2.0, "norm to which each local gradient is clipped, with the terms of the solver; 0 does not clip", low=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, name in self.keys().items():
            if isinstance(value := getattr(self, name), float):
                require(abs(value) <= FLOAT32_MAX, key, "a number of float32, at most 3.4e38", value)
        if (self.local_steps > 0) == (self.local_epochs > 0):
            steps, epochs = self.local_steps, self.local_epochs
            remedy = "also set local-steps=0 for epochs, or local-epochs=0 for steps" if steps else "set one of them"
            raise ConfigError(
                "Exactly one of 'local-steps' and 'local-epochs' must be above 0. "
                f"Now local-steps={steps} and local-epochs={epochs}: {remedy}."
            )

    @property
    def traits(self) -> SolverTraits:
        """Traits of the solver."""
        return SOLVERS[self.solver]

    @property
    def proximal(self) -> float:
        """Proximal coefficient, the pull towards the received weights: mu of fedprox, alpha of feddyn, else 0."""
        pull = self.traits.pull
        return float(getattr(self, pull.replace("-", "_"))) if pull else 0.0

    def steps(self, examples: int, epochs: int = 0, least: int = 1) -> int:
        """Local steps of a client with `examples` training examples; `epochs` above 0 replace its usual local work.

        `least` is that of `passes`.
        """
        passes = epochs or self.local_epochs
        return passes * self.passes(examples, least) if passes else self.local_steps

    def passes(self, examples: int, least: int = 1) -> int:
        """Mini-batches of one pass over `examples`; a last one of fewer than `least` joins the one before."""
        full, rest = divmod(examples, self.batch_size)
        return full + (rest >= least or (rest > 0 and not full))

    def effective_steps(self, steps: int) -> float:
        """Effective steps ||a||_1: steps of plain SGD on a constant gradient with the same result (FedNova, below Eq.
        6).

        With momentum rho they are (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho); without momentum they are tau.
        """
        rho = self.momentum
        return (steps - rho * (1.0 - rho**steps) / (1.0 - rho)) / (1.0 - rho)

    def learning_rate(self, server_round: int, rounds: int) -> float:
        """Learning rate of round t of T: eta_0 (1 - decay min(t/T, 1)), times 1/2^floor((t - 1) / step-rounds)."""
        steps = max(server_round - 1, 0) // self.lr_step_rounds if self.lr_step_rounds else 0
        return self.lr * (1.0 - self.lr_decay * min(server_round / rounds, 1.0)) * 0.5**steps


@dataclass(frozen=True)
class TaskConfig(Settings, scope="task"):
    """Task: the loss, and the weights of its classes and labels."""

    task: str = setting(
        "", "package.module:Class with a loss and scores of yours; empty: those of the data's own task", code=True
    )
    class_weights: str = setting(
        "",
        "classification: weight of each class in the loss, as numbers in the order of the classes, such as 1,9; or"
        " balanced, which is examples / (present classes * examples of the class), counted over a client's own training"
        " examples, and over the test set for the server's test, and 1 for a class that is only in its test part;"
        " empty: 1",
        read_by={"task": ("",)},
    )
    positive_weights: str = setting(
        "all",
        "weight of a positive label in the multi-label loss: negatives / positives, counted over a set of examples",
        choices={
            "all": "all training examples of the machine, or its test set if it has none",
            "client": "all training examples in evaluation, and the client's own in local training",
        },
        private=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task:
            module, _, name = self.task.partition(":")
            require(bool(module and name), "task", "package.module:Class, a class of yours", self.task)
        try:
            valid = all(0.0 < weight < math.inf for weight in self.listed_weights)
        except ValueError:
            valid = False
        require(valid, "class-weights", "balanced, or a number above 0 for each class, such as 1,9", self.class_weights)

    @property
    def balanced(self) -> bool:
        """True if the weights of the classes are counted."""
        return self.class_weights == "balanced"

    @property
    def listed_weights(self) -> list[float]:
        """Weights in `class-weights`; empty if they are counted, or all are 1."""
        listed = "" if self.balanced else self.class_weights
        return [float(weight) for weight in listed.split(",")] if listed else []
