"""Flower's grid with scripted replies, for federations of fedsel on it."""

import time
from types import SimpleNamespace

import numpy as np
from flwr.app import ConfigRecord, Error, RecordDict

from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.messages.records import clients_named
from strategies.round.federation import Message, Reply, sent_model

TRAIN = CalibrateInstruction(1, 1)
MODEL = sent_model(np.zeros(4, np.float32), np.zeros(0, np.float32))


def asked(clients, instruction=TRAIN, model=MODEL):
    """A message to each of the clients, whose nodes are their ids plus 100."""
    return [Message(str(100 + client), instruction, model, client) for client in clients]


class ScriptedGrid:
    """Grid whose `answer` gives the replies to a message, now or from a time on; an exception there is of the pull."""

    def __init__(self, answer, gone=()):
        self._answer, self._gone = answer, set(gone)
        self.sent, self._waiting = [], {}

    def get_node_ids(self):
        return [100, 101]

    def push_messages(self, messages):
        taken = []
        for message in messages:
            name = f"message {len(self.sent)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            if message.metadata.dst_node_id not in self._gone:
                taken.append(name)
                self._waiting[name] = self._answer(message)
        return taken

    def pull_messages(self, names):
        ready = [name for name in names if name in self._waiting and time.monotonic() >= self._waiting[name][0]]
        for name in ready:
            if isinstance(self._waiting[name][1], Exception):
                raise self._waiting[name][1]
        return [reply for name in ready for reply in self._waiting.pop(name)[1]]


def reply(message, error=""):
    """The reply of each client of a message."""
    metadata = SimpleNamespace(reply_to_message_id=message.metadata.message_id)
    if error:
        return SimpleNamespace(metadata=metadata, has_error=lambda: True, error=Error(2, error))
    content = RecordDict()
    for client in clients_named(message.content):
        content[f"fedsel.{client}"] = ConfigRecord({"examples": client})
    if not clients_named(message.content):
        content["fedsel"] = ConfigRecord({"examples": message.metadata.dst_node_id - 100})
    return SimpleNamespace(metadata=metadata, content=content, has_error=lambda: False)


def at_once(message):
    return 0.0, [reply(message)]


def examples(answers):
    return {node: answer.examples for node, answer in answers.items() if isinstance(answer, Reply)}
