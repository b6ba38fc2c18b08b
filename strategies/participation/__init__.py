"""Participation policies: how many clients train in a round, by a schedule or by search (ISP)."""

from strategies.participation.isp import ISP
from strategies.participation.schedules import Participation
from strategies.run_context import RunContext


def participation_of(context: RunContext) -> Participation:
    """The participation policy that the settings name."""
    return ISP(context) if context.participation.searches else Participation(context)
