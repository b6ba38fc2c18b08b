"""Pipeline of a run in one sentence: the clients' compression and training, and the server's step."""

from collections.abc import Mapping

from fedsel_app.config import Value
from fedsel_app.config.compression import COMPRESSORS
from fedsel_app.config.server import SERVER_OPTIMIZERS
from fedsel_app.config.training import SOLVERS


def pipeline_text(values: Mapping[str, Value]) -> str:
    """Text about compressor, solver and server optimizer for the settings `values`, setting key -> value."""
    return f"compressor {_compressor(values)}; solver {_solver(values)}; server optimizer {_server(values)}"


def _compressor(values: Mapping[str, Value]) -> str:
    name = str(values["compressor"])
    traits = COMPRESSORS[name]
    own_bits = traits.rounded_by not in ("", traits.strength)
    bits = values.get(traits.rounded_by if own_bits else "value-bits", 32)
    strength, lossless = traits.strength, traits.lossless and bits == 32
    parts = [f"{strength} {values[strength]:g}"] if strength else []
    parts += [f"{bits} bits a value"] if bits != 32 else []
    parts += ["error feedback"] if values["error-feedback"] and not lossless else []
    return _with(name, parts)


def _solver(values: Mapping[str, Value]) -> str:
    solver, optimizer = str(values["solver"]), str(values["optimizer"])
    pull = SOLVERS[solver].pull
    rate = f"lr {values['lr']:g}"
    decay = float(values["lr-decay"])
    rate += f" falling to {float(values['lr']) * (1.0 - decay):g}" if decay else ""
    every = values["lr-step-rounds"]
    rate += f", halved every {every} rounds" if every else ""
    parts = [f"{pull} {values[pull]:g}"] if pull and values[pull] else []
    parts += [optimizer] if optimizer != "sgd" else []
    parts += [f"momentum {values['momentum']:g}"] if values["momentum"] else []
    parts += [rate]
    parts += [f"gradients clipped at {values['clip-norm']:g}"] if values["clip-norm"] else []
    return _with(solver, parts)


def _server(values: Mapping[str, Value]) -> str:
    name = str(values["server-optimizer"])
    strength = SERVER_OPTIMIZERS[name].strength
    parts = [f"{values[strength]:g}"] if strength else []
    return _with(name, [*parts, f"server-lr {values['server-lr']:g}"])


def _with(name: str, parts: list[str]) -> str:
    return f"{name} ({', '.join(parts)})" if parts else name
