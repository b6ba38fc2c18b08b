"""Small data sets of the kinds that users bring: owners of few examples, tokens, samples in several arrays."""

import numpy as np

VOCABULARY = 50


def _two_classes(owners):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8)).astype("float32")
    y = (x[:, 0] + x[:, 1] > 0).astype("int64")
    return {"x_train": x[:160], "y_train": y[:160], "x_test": x[160:], "y_test": y[160:], "owners": owners}


def owners_of_one(config):
    """Five owners; the fourth has one example, and the first three have 33, one more than a mini-batch."""
    return _two_classes(np.repeat(np.arange(5), [33, 33, 33, 1, 60]))


def owners_of_two(config):
    """Five owners of 33, 33, 32, 2 and 60 examples."""
    return _two_classes(np.repeat(np.arange(5), [33, 33, 32, 2, 60]))


def _tokens():
    rng = np.random.default_rng(0)
    x = rng.integers(1, VOCABULARY, (600, 12))
    return x, ((x < VOCABULARY // 2).sum(1) > 6).astype("int64")


def tokens(config):
    """Sentences of 12 tokens; the class says whether most tokens are small numbers."""
    x, y = _tokens()
    return {"x_train": x[:500], "y_train": y[:500], "x_test": x[500:], "y_test": y[500:]}


def named_tokens(config):
    """The same as a tokenizer returns them; the last tokens of every other sentence are padding."""
    x, y = _tokens()
    mask = np.ones_like(x)
    mask[::2, 9:] = 0
    parts = {"train": slice(None, 500), "test": slice(500, None)}
    named = {f"x_{part}": {"input_ids": x[rows], "attention_mask": mask[rows]} for part, rows in parts.items()}
    return named | {f"y_{part}": y[rows] for part, rows in parts.items()}


def tokens_and_numbers(config):
    """Tokens beside two float features."""
    x, y = _tokens()
    numbers = np.stack([y - 0.5, x.mean(axis=1) / VOCABULARY], axis=1)
    parts = {"train": slice(None, 500), "test": slice(500, None)}
    named = {f"x_{part}": {"words": x[rows], "numbers": numbers[rows]} for part, rows in parts.items()}
    return named | {f"y_{part}": y[rows] for part, rows in parts.items()}
