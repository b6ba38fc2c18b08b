"""Scopes: what a setting describes, and what follows from that."""

from typing import Literal, NamedTuple

Owner = Literal["", "may", "alone"]
"""Whether the owner of a client may set it for that client in a deployment, and whether nobody else may."""


class Scope(NamedTuple):
    """What follows from what a setting describes.

    Attributes
    ----------
    numbers : whether it can change a number of a run; a resumed run may change the others
    tuned : whether a tuning may vary it; the others are the same for all methods
    own_app : whether fedsel reads it beside a user's own Flower app; the app itself does the rest
    """

    numbers: bool = True
    tuned: bool = True
    own_app: bool = True


SCOPES = {
    "server": Scope(),
    "wire": Scope(),
    "training": Scope(own_app=False),
    "federation": Scope(tuned=False),
    "task": Scope(tuned=False, own_app=False),
    "place": Scope(numbers=False, tuned=False),
    "engine": Scope(numbers=False, tuned=False, own_app=False),
}
"""What a setting describes -> what follows from that.

server: how the server selects clients and combines their updates, and what it must know of their training. wire: how a
client encodes its update. training: what else a client computes. federation: who takes part, over which links, and how
the model is tested. task: the model, its data, and the arithmetic. place: where the records are, and how long the
server waits. engine: how the machines carry out the run.
"""
