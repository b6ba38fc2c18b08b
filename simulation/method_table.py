"""What each method needs to know, and what that costs."""

from collections.abc import Iterator

from strategies import STRATEGIES
from strategies.exchange import SCALAR_BYTES
from strategies.roster import Needs


def method_rows(size: int, clients: int) -> Iterator[tuple[str, str, str, str]]:
    """Name, paper, needs and their cost a round, for a model of `size` parameters and `clients` clients."""
    for name, method in STRATEGIES.items():
        needs = method.needs(method.Config())
        yield name, method.paper, ", ".join(_describe(needs)) or "nothing", _cost(needs, size, clients)


def _describe(needs: Needs) -> Iterator[str]:
    if needs.loss_probe:
        yield "every client's loss"
    if needs.label_counts:
        yield "label counts (once)"
    if needs.updates:
        yield "last updates (on the server)"
    if needs.links:
        yield "link speeds"


def _cost(needs: Needs, size: int, clients: int) -> str:
    if not needs.loss_probe:
        return "0"
    down, up = clients * 4 * size / 1e6, clients * SCALAR_BYTES / 1e6
    return f"{down:,.1f} MB down, {up:.4f} MB up, 8 forward batches a client"
