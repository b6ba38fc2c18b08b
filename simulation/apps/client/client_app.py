"""A user's own ClientApp in fedsel's rounds: `client_app()` replaces Flower's `ClientApp()`.

It enrols, answers loss probes, compresses the updates, stores the client's state and sends reports. The user's
`@app.train()` and `@app.evaluate()` get only the user's own records. Without fedsel's server it behaves like Flower's.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedsel_app.config import ConfigError
from fedsel_app.imports import LEGACY
from fedsel_app.messages.records import fedsel_config
from simulation.apps.client.messages import ENROL
from simulation.apps.client.user_client import Functions, UserClient

Decorator = Callable[[ClientAppCallable], ClientAppCallable]
DEFAULT = "default"
"""Flower's name of the default action, for a message type without an action."""


def client_app(client_fn: None = None, *, mods: list[Mod] | None = None, **functions: Any) -> ClientApp:
    """Build a ClientApp for `@app.train()` and `@app.evaluate()`, like Flower's own.

    The functions are those of `user_client.Functions`. They compute what only the user can compute.

    Raises ConfigError for a function of another name, and for the `client_fn` of Flower's legacy API.
    """
    if client_fn is not None:
        raise ConfigError(LEGACY)
    names = [field.name for field in fields(Functions)]
    if unknown := [name for name in functions if name not in names]:
        raise ConfigError(f"client_app() takes the functions {', '.join(names)}, and mods. Got {', '.join(unknown)}.")
    return SelectingApp(mods, Functions(**functions))


class SelectingApp(ClientApp):
    """A ClientApp that answers fedsel's server with the user's functions that are registered with it.

    A second ClientApp has these functions. One message may call the second app several times, but enters the lifespan
    of this app only once.
    """

    def __init__(self, mods: list[Mod] | None, functions: Functions) -> None:
        super().__init__()
        self._users = ClientApp(mods=mods)
        self._functions = functions
        for register in (super().query, super().train, super().evaluate):
            register()(self._answer)
        super().query(ENROL.split(".")[1])(self._answer)

    def _answer(self, message: Message, context: Context) -> Message:
        if fedsel_config(message.content) is None:
            return self._users(message, context)
        return UserClient(message, context, self._users, self._functions).answer()

    def query(self, action: str = DEFAULT, *, mods: list[Mod] | None = None) -> Decorator:
        """Register a query function, as Flower's ClientApp does."""
        return self._registering(self._users.query(action, mods=mods), super().query, action)

    def train(self, action: str = DEFAULT, *, mods: list[Mod] | None = None) -> Decorator:
        """Register a train function, as Flower's ClientApp does."""
        return self._registering(self._users.train(action, mods=mods), super().train, action)

    def evaluate(self, action: str = DEFAULT, *, mods: list[Mod] | None = None) -> Decorator:
        """Register an evaluate function, as Flower's ClientApp does."""
        return self._registering(self._users.evaluate(action, mods=mods), super().evaluate, action)

    def _registering(self, users: Decorator, register: Callable[[str], Decorator], action: str) -> Decorator:
        def decorator(function: ClientAppCallable) -> ClientAppCallable:
            users(function)
            if action != DEFAULT:
                register(action)(self._answer)
            return function

        return decorator
