"""Flower's legacy API for a user's client: `ClientApp(client_fn, mods=[selecting])`.

The mod `selecting` converts messages to the layout of `fedsel_app.messages.records` and back, so that the user's `fit`
and `evaluate` get their own arrays and config. Without fedsel's server it does nothing. An app with `@app.train()` uses
`simulation.apps.client.client_app` instead.

Flower's `FitIns`, `FitRes` and so on are records with the names below. Their configs and metrics contain fedsel's keys
with a prefix (see `simulation.apps.client.messages`). Functions of the user need `client_app`.
"""

from collections.abc import Mapping
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import Code

from fedsel_app.messages.records import ERROR, FEDSEL, MACHINE_FAULT, config_record, fedsel_config
from fedsel_app.messages.scalars import Config, Scalar
from simulation.apps.client.messages import (
    ENROL,
    EVALUATION,
    EVALUATION_PREFIX,
    embed,
    embedded,
    users_arrays,
    users_keys,
)
from simulation.apps.client.user_client import Unanswered, UserClient, content_of

NAMES = {"train": "fit", "evaluate": "evaluate"}
"""First part of the names of the records, by type of message."""


def selecting(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Mod of a Flower ClientApp: answer a message of fedsel's server through the user's `client_fn`; pass on others."""
    if message.metadata.message_type == ENROL:
        try:
            return UserClient(message, context, call_next, lists=True).answer()
        except Exception as error:  # noqa: BLE001 - as a reply, it tells the server that the app has fedsel's line
            return Message(RecordDict({FEDSEL: config_record({ERROR: str(error)})}), reply_to=message)
    record = message.content.get(f"{NAMES.get(message.metadata.message_type)}ins.config", ConfigRecord())
    config = dict(cast(Mapping[str, Scalar], record))
    instruction = embedded(config)
    if not instruction:
        return call_next(message, context)

    def code(question: Message, context: Context) -> Message:
        """Call the client's function for the message, with the user's own config. Raises Unanswered if it fails."""
        name = NAMES[question.metadata.message_type]
        _, arrays = users_arrays(question.content)
        [config] = question.content.config_records.values()
        users = config_record(users_keys(cast(Config, config)))
        question.content = RecordDict({f"{name}ins.parameters": arrays, f"{name}ins.config": users})
        reply = call_next(question, context)
        status = content_of(reply).config_records[f"{name}res.status"]
        if status["code"] != Code.OK.value:
            raise Unanswered(reply, str(status["message"]))
        return reply

    client = UserClient(message, context, code, lists=True)
    message.content[FEDSEL] = config_record(instruction)
    message.content[EVALUATION] = config_record(embedded(config, EVALUATION_PREFIX))
    return _embedded(client.answer())


def _embedded(reply: Message) -> Message:
    """The reply with fedsel's numbers among its metrics. That of a client whose machine fails has no other content."""
    numbers = None if reply.has_error() else fedsel_config(reply.content)
    if numbers is None:
        return reply
    del reply.content[FEDSEL]
    if MACHINE_FAULT in numbers:
        reply.content["fitres.parameters"] = ArrayRecord()
        reply.content["fitres.num_examples"] = MetricRecord({"num_examples": 0})
        reply.content["fitres.status"] = config_record({"code": Code.OK.value, "message": ""})
    users = cast(Config, reply.content.get("fitres.metrics", {}))
    reply.content["fitres.metrics"] = config_record(embed(numbers, users))
    return reply
