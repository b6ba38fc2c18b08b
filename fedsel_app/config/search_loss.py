"""Settings of the loss that ISP's search goes by."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class SearchLossConfig(Settings):
    """ISP search loss: the examples that it is measured on, and its smoothing."""

    isp_loss: str = setting(
        "clients",
        "loss that the search goes by: on the clients' own test parts, or on the server's surrogate set",
        choices=("clients", "surrogate"),
    )
    isp_jury: str = setting(
        "same",
        "clients that judge a candidate where isp-loss is clients: all available ones, as they judge the global model, "
        "or the subset that it was made from (the printed Algorithm 4)",
        choices=("same", "subset"),
    )
    surrogate_path: str = setting("", "the surrogate set: an .npz file with x and y, as the data set's training part")
    isp_smoothing: float = setting(
        2 / 6, "weight of the newest loss in the moving average (1: no smoothing)", above=0.0, high=1.0
    )
    isp_window: int = setting(5, "rounds whose global losses the moving average takes, this one included", low=1)
    isp_smoothing_rule: str = setting(
        "text",
        "text: a candidate's loss enters the moving average, which must be below the global model's loss; code: a "
        "candidate's own loss must be below the moving average of the global models' losses (authors' code)",
        choices=("text", "code"),
    )
