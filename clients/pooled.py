"""In a simulation every process has every client's data, so one client can answer a question for many."""

import json
from dataclasses import replace

from flwr.common import NDArrays

from clients.client import Config, SelectionClient


class PooledClient(SelectionClient):
    """A client that answers evaluate for all that config["clients"] names, ids with commas between them.

    Each answer is what that client would give to a message of its own; together they are the metric "answers", JSON: a
    list of {"client", "loss", "examples", "metrics"}, or {"client", "error"} for one that failed.
    """

    def evaluate(self, parameters: NDArrays, config: Config) -> tuple[float, int, Config]:
        """Answer for oneself, or with config["clients"] for those."""
        if "clients" not in config:
            return super().evaluate(parameters, config)
        answers: list[dict[str, object]] = []
        for client in map(int, str(config["clients"]).split(",")):
            try:
                one = SelectionClient(replace(self._context, client=client))
                loss, examples, metrics = one.evaluate(parameters, config)
                answers.append({"client": client, "loss": loss, "examples": examples, "metrics": metrics})
            except Exception as error:  # noqa: BLE001 - whatever one client's message raises is that client's failure
                answers.append({"client": client, "error": str(error)})
        return 0.0, len(answers), {"answers": json.dumps(answers)}
