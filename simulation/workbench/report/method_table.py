"""Methods table: the knowledge that each method needs."""

from collections.abc import Iterable, Iterator

from strategies.base import SelectionStrategy
from strategies.roster import Needs


def method_rows(methods: Iterable[type[SelectionStrategy]]) -> Iterator[tuple[str, str, str]]:
    """Name, paper and needs of each method."""
    for method in methods:
        yield method.name, method.paper, ", ".join(_describe(method.needs(method.Config()))) or "nothing"


def _describe(needs: Needs) -> Iterator[str]:
    if needs.loss_probe:
        yield "losses before selection"
    if needs.metrics:
        yield f"{', '.join(needs.metrics)} before selection"
    for report in sorted(needs.reports):
        yield f"{report.replace('_', ' ')} of the selected"
    if needs.label_counts:
        yield "label counts (once)"
    if needs.class_biases:
        yield "an output layer with class biases"
    if needs.output_biases:
        yield "an output layer with biases"
    if needs.updates:
        yield "last updates (kept by the server)"
    if needs.links:
        yield "link speeds"
