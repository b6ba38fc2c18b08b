"""Methods table: the knowledge that each method needs, and its cost in the first round."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fedsel_app.messages.answers import FORWARD_STEPS
from fedsel_app.messages.scalars import Report
from strategies.base import SelectionStrategy
from strategies.roster import Needs, RoundInfo
from strategies.round.clients import SCALAR_BYTES

REPORT_STEPS = {Report.INITIAL_LOSS: FORWARD_STEPS, Report.RMS_LOSS: FORWARD_STEPS, Report.GRADIENT_DEVIATION: 1.0}
"""Local steps that a report takes for each mini-batch of the client's data."""


@dataclass(frozen=True)
class Scale:
    """Federation for which the costs are computed. A local step takes `step_s` seconds."""

    size: int
    clients: int
    cohort: int
    examples: int = 500
    batch_size: int = 32
    step_s: float = 0.3
    classes: int = 10


def method_rows(methods: Iterable[type[SelectionStrategy]], scale: Scale) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, paper, needs, and the costs of the needs in round 1: MB down and up, and seconds of a client."""
    for method in methods:
        needs = method.needs(method.Config())
        megabytes, seconds = _cost(method, needs, scale)
        yield method.name, method.paper, ", ".join(_describe(needs)) or "nothing", megabytes, seconds


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


def _cost(method: type[SelectionStrategy], needs: Needs, scale: Scale) -> tuple[str, str]:
    batches = -(-scale.examples // scale.batch_size)
    down_bytes = up_bytes = 0
    seconds = 0.0
    if needs.probed_numbers:
        probed = method.probe_count(method.Config(), RoundInfo(1, 1), scale.cohort, scale.clients)
        down_bytes += probed * 4 * scale.size
        up_bytes += probed * SCALAR_BYTES * needs.probed_numbers
        probed_batches = 8 if needs.probe_batches is None else needs.probe_batches or batches
        seconds += probed_batches * FORWARD_STEPS * scale.step_s
    up_bytes += len(needs.reports) * scale.cohort * SCALAR_BYTES
    seconds += sum(REPORT_STEPS[report] for report in needs.reports) * batches * scale.step_s
    if needs.label_counts:
        up_bytes += scale.clients * scale.classes * SCALAR_BYTES
    if not down_bytes + up_bytes:
        return "0", "0"
    return f"{down_bytes / 1e6:,.1f} down, {up_bytes / 1e6:.4f} up", f"{seconds:.1f}"
