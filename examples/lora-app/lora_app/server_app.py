"""The server app: the strategy, the initial adapters and the central test."""

import fedsel_app
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from lora_app.models import get_arrays, get_model, set_arrays
from lora_app.task import load_centralized_dataset, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation and save the final adapters."""
    run = context.run_config
    clients, kept = run["num-clients"], run["kept-fraction"]
    compressor = {"compressor": "top-k", "kept_fraction": kept} if kept < 1.0 else {}
    strategy = fedsel_app.strategy(
        run["strategy"],
        clients=clients,
        cohort=2,
        out=run["out"],
        resume="auto",
        **compressor,
    )
    model = get_model(run["model"], run["lora-rank"])
    sequences = load_centralized_dataset(clients, run["model"], run["sequence-length"])

    def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_arrays(model, arrays)
        loss, accuracy = test(model, sequences)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    result = strategy.start(
        grid=grid,
        initial_arrays=get_arrays(model),
        train_config=ConfigRecord({"lr": run["lr"]}),
        num_rounds=run["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
    torch.save(result.arrays.to_torch_state_dict(), "adapters.pt")
