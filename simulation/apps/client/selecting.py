"""Flower mod `selecting`: a user's own `client_fn` enrols, answers loss probes, compresses its updates and reports.

A client app needs only `ClientApp(client_fn, mods=[selecting])`. The user's `fit` and `evaluate` get their own arrays
and their own config; the mod reads what fedsel's server sends in addition. Without fedsel's server the mod does
nothing. An app with `@app.train()` uses `simulation.apps.client.client_app` instead.
"""

from functools import partial
from typing import Any, overload

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from simulation.apps.client.legacy_messages import answer_legacy
from simulation.apps.client.user_client import Functions


@overload
def selecting(message: Message, context: Context, call_next: ClientAppCallable, /) -> Message: ...


@overload
def selecting(**functions: Any) -> Mod: ...


def selecting(
    message: Message | None = None,
    context: Context | None = None,
    call_next: ClientAppCallable | None = None,
    /,
    **functions: Any,
) -> Message | Mod:
    """Mod of a Flower ClientApp: `mods=[selecting]`, or `mods=[selecting(losses=...)]` with the user's functions.

    The functions are those of `user_client.Functions`; their arrays are lists. Raises TypeError for any other.
    """
    if message is None or context is None or call_next is None:
        return partial(answer_legacy, functions=Functions.named(functions))
    return answer_legacy(message, context, call_next, Functions())
