"""Settings of local training: steps, optimizer and solver."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """Local training of a client in a round: steps, optimizer and solver."""

    local_steps: int = setting(50, "local SGD steps H a round (0: use local-epochs)", low=0)
    local_epochs: int = setting(0, "passes over the client's data a round (0: use local-steps)", low=0)
    batch_size: int = setting(32, "examples a step", low=1)
    batch_order: str = setting(
        "stream",
        "mini-batches of local-steps: all of batch-size, across the ends of passes; or as a data loader gives them, the"
        " last of a pass smaller and the loss probe one pass at most",
        choices=("stream", "loader"),
    )
    lr: float = setting(0.05, "local learning rate in round 0", above=0.0)
    lr_decay: float = setting(
        0.5, "share of lr lost linearly over the run: lr (1 - lr-decay min(t/T, 1))", low=0.0, high=1.0
    )
    lr_step_rounds: int = setting(0, "rounds after each of which lr is multiplied by lr-step-factor (0: never)", low=0)
    lr_step_factor: float = setting(0.5, "what lr is multiplied by every lr-step-rounds", above=0.0, high=1.0)
    optimizer: str = setting(
        "sgd", "how a local gradient becomes a step; it remembers nothing of earlier rounds",
        choices={"sgd": "with momentum", "adam": "by moments of the round", "adamw": "adam, its decay apart"},
    )  # fmt: skip
    momentum: float = setting(0.9, "local momentum of sgd; of adam and adamw the decay beta1", low=0.0, below=1.0)
    weight_decay: float = setting(0.0, "L2 penalty of the local steps (adamw: decay apart from the gradient)", low=0.0)
    solver: str = setting(
        "fedprox",
        "what the local steps descend, and what clients and server remember for it",
        choices={
            "fedprox": "the loss and mu / 2 times the squared distance from the global model",
            "sgd": "the loss alone",
            "scaffold": "gradients corrected by control variates of client and server",
            "feddyn": "the loss, a linear term that is remembered, and feddyn-alpha / 2 times the squared distance",
            "fednova": "the loss alone; the server takes updates by their effective steps",
        },
    )
    mu: float = setting(0.1, "proximal coefficient of the solver fedprox; 0 is plain SGD", low=0.0)
    feddyn_alpha: float = setting(0.1, "regularisation coefficient of the solver feddyn", above=0.0)
    clip_norm: float = setting(
        2.0, "largest norm of a local gradient, the solver's terms included (0: no clipping)", low=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.local_steps > 0) == (self.local_epochs > 0):
            steps, epochs = self.local_steps, self.local_epochs
            remedy = "also set local-steps=0 for epochs, or local-epochs=0 for steps" if steps else "set one of them"
            raise ConfigError(
                "Exactly one of 'local-steps' and 'local-epochs' must be above 0. "
                f"Now local-steps={steps} and local-epochs={epochs}: {remedy}."
            )

    @property
    def proximal(self) -> float:
        """Proximal coefficient, the pull towards the received weights: mu of fedprox, alpha of feddyn, else 0."""
        return {"fedprox": self.mu, "feddyn": self.feddyn_alpha}.get(self.solver, 0.0)

    def steps(self, examples: int, epochs: int = 0) -> int:
        """Local steps of a client with `examples` training examples; `epochs` above 0 replace its usual local work."""
        passes = epochs or self.local_epochs
        return passes * self.passes(examples) if passes else self.local_steps

    def passes(self, examples: int) -> int:
        """Mini-batches of one pass over `examples`."""
        return -(-examples // self.batch_size)

    def effective_steps(self, steps: int) -> float:
        """Effective steps ||a||_1: steps of plain SGD on a constant gradient that lead as far (FedNova, below Eq. 6).

        With momentum rho they are (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho), and tau without.
        """
        rho = self.momentum
        return (steps - rho * (1.0 - rho**steps) / (1.0 - rho)) / (1.0 - rho)

    def learning_rate(self, server_round: int, rounds: int) -> float:
        """Learning rate of round t of T: eta_0 (1 - decay min(t/T, 1)), times factor^floor((t - 1) / step-rounds)."""
        steps = max(server_round - 1, 0) // self.lr_step_rounds if self.lr_step_rounds else 0
        return self.lr * (1.0 - self.lr_decay * min(server_round / rounds, 1.0)) * self.lr_step_factor**steps
