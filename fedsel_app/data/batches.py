"""Mini-batches: a data set on the training device, and the batches drawn from it.

Each process keeps the whole data set on the device once, with images as uint8. Clients are index arrays into it.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedsel_app.caches import kept
from fedsel_app.config import ConfigError, DataConfig, PreprocessingConfig
from fedsel_app.config.data import PUBLISHED_MOMENTS
from fedsel_app.data.dataset import Dataset, load
from fedsel_app.data.inputs import Inputs, mapped, tensors

Positions = NDArray[np.int64]
PADDING = {"flip": 0, "crop-flip": 4}
"""Width of the zeros around an image before it is cropped, in pixels."""

KEPT_BYTES = 1 << 26
"""Largest size in bytes of a normalised test set that stays in memory after its first use."""

KEPT_BATCHES = 10_000
"""Largest number of mini-batches whose positions are in memory together."""

GATHERED_BYTES = 1 << 20
"""Upper bound on the bytes of normalised mini-batches that are gathered together, unless one mini-batch has more."""


class DeviceData:
    """A data set as tensors on one device.

    Raises ConfigError if augmentation is set and the samples are not (C, H, W) images, or if 'moments' do not fit the
    images.

    Parameters
    ----------
    dataset : the arrays; on the CPU the tensors share their memory
    config : normalisation and augmentation of the batches
    device : device of the tensors

    Attributes
    ----------
    x_train, x_test : uint8, float32 or int64 tensors of shape (n, *sample_shape), or several by name
    y_train, y_test : tensors of shape (n,) or (n, L), as in the data set
    """

    def __init__(self, dataset: Dataset, config: PreprocessingConfig, device: torch.device) -> None:
        if config.augment != "none" and len(dataset.sample_shape) != 3:
            raise ConfigError(
                f"The 'augment' parameter '{config.augment}' needs images, but the samples of this data set have "
                f"shape {dataset.sample_shape}. Set augment=none."
            )
        self.x_train, self.x_test = (
            mapped(lambda x: x.to(device), tensors(samples)) for samples in (dataset.x_train, dataset.x_test)
        )
        self.y_train, self.y_test = (
            torch.from_numpy(np.require(y, requirements=["C", "W"])).to(device)
            for y in (dataset.y_train, dataset.y_test)
        )
        self._plain = dataset.x_train.dtype not in (np.uint8, np.float32)
        unit = 255.0 if dataset.x_train.dtype == np.uint8 else 1.0
        per_channel = (-1,) + (1,) * (len(dataset.sample_shape) - 1)
        # One division by tensors: the same bits on every device (CUDA multiplies by a scalar's reciprocal).
        zero = np.zeros_like(dataset.mean)
        one = np.ones_like(dataset.std)
        mean, std = _moments(dataset, config) if config.normalize else (zero, one)
        self._offset = torch.tensor(mean * np.float32(unit), device=device).reshape(per_channel)
        self._scale = torch.tensor(std * np.float32(unit), device=device).reshape(per_channel)
        self._padding = PADDING.get(config.augment)
        self._kept_test: Inputs | None = None

    def train_batch(
        self, indices: NDArray[np.int64] | Tensor, generator: torch.Generator | None
    ) -> tuple[Inputs, Tensor]:
        """Gather, augment and normalise training examples.

        Parameters
        ----------
        indices : positions of the training examples, int64 (b,)
        generator : a CPU generator for augmentation, which gives the same draws for every device. Without one, or if
            'augment' is none, nothing is augmented or drawn.

        Returns
        -------
        x : float32 tensor of shape (b, *sample_shape); samples of whole numbers or of several arrays as they are
        y : their labels
        """
        index = torch.as_tensor(indices).to(self.y_train.device)
        x = mapped(lambda x: x.index_select(0, index), self.x_train)  # 15 times as fast as x_train[index] for bytes
        if self._padding is not None and generator is not None and isinstance(x, Tensor):
            x = _crop_and_flip(x, self._padding, generator)
        return self._normalised(x), self.y_train.index_select(0, index)

    def train_batches(
        self, order: Iterable[NDArray[np.int64]], generator: torch.Generator | None
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Mini-batches of the training examples at each of `order`, as `train_batch` makes them.

        Several small mini-batches are gathered and normalised together, unless each is augmented.
        """
        if self._padding is not None and generator is not None:
            yield from (self.train_batch(positions, generator) for positions in order)
            return
        most_examples = GATHERED_BYTES // (4 * entries(self.x_train) // len(self.y_train))
        for together in _groups(order, most_examples):
            x, y = self.train_batch(np.concatenate(together), None)
            sizes = [positions.size for positions in together]
            yield from zip(_split(x, sizes), torch.split(y, sizes), strict=True)

    def test_batches(self, batch_size: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Batches of the normalised test set, in order, of `batch_size` examples; the last may be smaller."""
        if self._kept_test is None and 4 * entries(self.x_test) <= KEPT_BYTES:
            self._kept_test = self._normalised(self.x_test)
        for start in range(0, len(self.y_test), batch_size):
            part = slice(start, start + batch_size)
            kept = self._kept_test
            taken = mapped(itemgetter(part), self.x_test if kept is None else kept)
            yield self._normalised(taken) if kept is None else taken, self.y_test[part]

    @cached_property
    def brightest(self) -> Tensor:
        """Largest value of each channel of the normalised images, float32 (C, 1, 1)."""
        images = cast(Tensor, self.x_train)
        return cast(Tensor, self._normalised(images.amax(dim=(0, 2, 3))[:, None, None]))

    def _normalised(self, x: Inputs) -> Inputs:
        return x if self._plain or isinstance(x, dict) else torch.sub(x, self._offset).div_(self._scale)


def _moments(dataset: Dataset, config: PreprocessingConfig) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if config.moments == "computed":
        return dataset.mean, dataset.std
    mean, std = (np.array(values, np.float32) for values in PUBLISHED_MOMENTS[config.moments])
    if mean.size != dataset.mean.size or dataset.x_train.dtype != np.uint8:
        raise ConfigError(
            f"The 'moments' parameter {config.moments} needs images with {mean.size} channels, but this data set's "
            f"samples have shape {dataset.sample_shape}. Set 'moments' to computed."
        )
    return mean, std


@kept
def device_data(data: DataConfig, preprocessing: PreprocessingConfig, seed: int, device: torch.device) -> DeviceData:
    """The data set of `data` on `device`, loaded once for each run."""
    return DeviceData(load(data, seed), preprocessing, device)


class Order:
    """Positions of mini-batches. Ten million take no memory: more than `KEPT_BATCHES` are drawn anew for each pass.

    Parameters
    ----------
    draw : draws the positions of each mini-batch, with the generator that it gets
    rng : the generator, which is left as if all positions had been drawn

    Attributes
    ----------
    batches, examples : number of mini-batches, and of their positions together
    """

    def __init__(self, draw: Callable[[np.random.Generator], Iterator[Positions]], rng: np.random.Generator) -> None:
        self._draw, self._rng, drawn = draw, deepcopy(rng), draw(rng)
        self._kept = list(islice(drawn, KEPT_BATCHES))
        self.batches, self.examples = len(self._kept), sum(map(len, self._kept))
        for positions in drawn:
            self.batches += 1
            self.examples += positions.size

    def __iter__(self) -> Iterator[Positions]:
        return iter(self._kept) if self.batches == len(self._kept) else self._draw(deepcopy(self._rng))


def batch_order(examples: int, batch_size: int, batches: int, rng: np.random.Generator) -> Iterator[Positions]:
    """Positions of the examples of each of `batches` mini-batches.

    The batches are consecutive slices of concatenated random permutations. So every example comes once before any
    example comes again. All batches have min(batch_size, examples) positions.

    Parameters
    ----------
    examples : number of examples, at least 1; positions are in [0, examples)
    batch_size, batches : examples per batch, and number of batches; both at least 1
    rng : draws the permutations
    """
    size, left = min(batch_size, examples), np.empty(0, np.int64)
    for _ in range(batches):
        if left.size < size:
            left = np.concatenate([left, rng.permutation(examples)])
        yield left[:size]
        left = left[size:]


def loader_order(
    examples: int, batch_size: int, batches: int, rng: np.random.Generator, least: int = 1
) -> Iterator[Positions]:
    """Positions of `batches` mini-batches of a shuffled data loader that restarts when it is exhausted.

    The last mini-batch of a pass may be smaller, as in PyTorch's loader; the arguments are those of `batch_order`, and
    `least` that of `chunks`.
    """
    return islice(epoch_order(examples, batch_size, batches, rng, least), batches)


def epoch_order(
    examples: int, batch_size: int, epochs: int, rng: np.random.Generator, least: int = 1
) -> Iterator[Positions]:
    """Positions of the mini-batches of whole epochs: random permutations, cut into `chunks`."""
    for _ in range(epochs):
        yield from chunks(rng.permutation(examples), batch_size, least)


def chunks(positions: Positions, size: int, least: int = 1) -> list[Positions]:
    """Consecutive parts of `positions`, of `size` each; the last may be smaller.

    A last part of fewer than `least` positions joins the part before it.
    """
    starts = range(0, positions.size, size)
    if len(starts) > 1 and positions.size - starts[-1] < least:
        starts = starts[:-1]
    return [positions[start:stop] for start, stop in zip(starts, [*starts[1:], positions.size], strict=False)]


def entries(inputs: Inputs) -> int:
    """Number of entries of the inputs."""
    return sum(tensor.numel() for tensor in (inputs.values() if isinstance(inputs, dict) else [inputs]))


def _split(inputs: Inputs, sizes: list[int]) -> list[Inputs]:
    """Consecutive parts of the inputs, of these numbers of examples."""
    if not isinstance(inputs, dict):
        return list(torch.split(inputs, sizes))
    parts = zip(*(torch.split(tensor, sizes) for tensor in inputs.values()), strict=True)
    return [dict(zip(inputs, part, strict=True)) for part in parts]


def _groups(order: Iterable[NDArray[np.int64]], most: int) -> Iterator[list[NDArray[np.int64]]]:
    """Groups of consecutive mini-batches: at most `most` examples, or a single larger mini-batch."""
    together: list[NDArray[np.int64]] = []
    for positions in order:
        if together and sum(map(len, together)) + positions.size > most:
            yield together
            together = []
        together.append(positions)
    if together:
        yield together


def _crop_and_flip(x: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Zero-pad each image, crop it back at a random place and mirror it left to right with probability 1/2."""
    count, channels, height, width = x.shape
    corner = torch.randint(2 * padding + 1, (count, 2), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    rows = corner[:, :1] + torch.arange(height)
    columns = corner[:, 1:] + torch.where(mirrored, torch.arange(width).flip(0), torch.arange(width))
    padded = functional.pad(x, (padding,) * 4)
    pixels = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).reshape(count, 1, -1).to(x.device)
    return padded.flatten(2).gather(2, pixels.expand(-1, channels, -1)).reshape(x.shape)
