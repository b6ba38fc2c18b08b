import itertools
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import ConfigError, PreprocessingConfig
from fedsel_app.data import batches
from fedsel_app.data.batches import DeviceData, Order, batch_order, chunks, epoch_order, loader_order
from fedsel_app.data.dataset import from_arrays
from tests.support.training import CPU

PLAIN = PreprocessingConfig(normalize=False)
FLIP = PreprocessingConfig(normalize=False, augment="flip")
CROP_FLIP = PreprocessingConfig(normalize=False, augment="crop-flip")


def images(count=40, shape=(3, 6, 7), seed=0):
    """Images without a zero pixel, so that padded pixels can be recognised."""
    x = np.random.default_rng(seed).integers(1, 256, size=(count, *shape), dtype=np.uint8)
    y = np.arange(count) % 4
    return from_arrays({"x_train": x, "y_train": y, "x_test": x[:9], "y_test": y[:9]}, "images")


def test_batches_are_gathered_and_scaled():
    dataset = images()
    data = DeviceData(dataset, PLAIN, CPU)
    x, y = data.train_batch(np.array([5, 3, 5]), None)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert np.array_equal(x.numpy(), dataset.x_train[[5, 3, 5]].astype(np.float32) / np.float32(255))
    assert y.tolist() == [1, 3, 1]
    assert torch.equal(data.train_batch(torch.tensor([5, 3, 5]), None)[0], x)
    assert data.x_train.dtype == torch.uint8


def test_normalisation_by_hand():
    """Channel 0 has as many 0 as 255 (mean 1/2, deviation 1/2); channel 1 has only 51 (its scale does not change)."""
    x = np.zeros((2, 2, 1, 2), dtype=np.uint8)
    x[:, 0] = [[[0, 255]], [[0, 255]]]
    x[:, 1] = 51
    dataset = from_arrays({"x_train": x, "y_train": [0, 1], "x_test": x, "y_test": [0, 1]}, "x")
    data = DeviceData(dataset, PreprocessingConfig(), CPU)
    for batch in (data.train_batch(np.array([0]), None)[0], next(iter(data.test_batches(1)))[0]):
        assert batch[0, 0].tolist() == [[-1.0, 1.0]]
        assert batch[0, 1].abs().max() < 1e-6


def test_published_moments_by_hand():
    """A pixel of 51 is 0.2: (0.2 - 0.4914) / 0.2023 and so on, channel by channel."""
    x = np.full((2, 3, 4, 4), 51, dtype=np.uint8)
    dataset = from_arrays({"x_train": x, "y_train": [0, 1], "x_test": x, "y_test": [0, 1]}, "x")
    sample, _ = DeviceData(dataset, PreprocessingConfig(moments="cifar10"), CPU).train_batch(np.array([0]), None)
    by_hand = [(0.2 - 0.4914) / 0.2023, (0.2 - 0.4822) / 0.1994, (0.2 - 0.4465) / 0.2010]
    np.testing.assert_allclose(sample[0, :, 0, 0].numpy(), by_hand, rtol=1e-5)
    with pytest.raises(ConfigError, match="Set 'moments' to computed"):
        DeviceData(dataset, PreprocessingConfig(moments="mnist"), CPU)


def reference(image, top, left, mirrored):
    """One image, pixel by pixel: the pixel at (row + top - 4, column + left - 4), or zero outside; then mirrored."""
    channels, height, width = image.shape
    out = np.zeros_like(image)
    for channel, row, column in itertools.product(range(channels), range(height), range(width)):
        source_row, source_column = row + top - 4, column + left - 4
        if 0 <= source_row < height and 0 <= source_column < width:
            out[channel, row, width - 1 - column if mirrored else column] = image[channel, source_row, source_column]
    return out


def test_augmentation_is_a_padded_crop_and_a_mirroring_of_each_image():
    """Every augmented image is one of the 9 * 9 * 2 images of a slow reference; 400 images include all choices."""
    dataset = images(400, (2, 6, 7))
    data = DeviceData(dataset, CROP_FLIP, CPU)
    made = data.train_batch(np.arange(400), torch.Generator().manual_seed(3))[0].mul(255).round().to(torch.uint8)
    choices = list(itertools.product(range(9), range(9), (False, True)))
    drawn = []
    for image, augmented in zip(dataset.x_train[:60], made.numpy()[:60], strict=True):
        matches = [choice for choice in choices if np.array_equal(reference(image, *choice), augmented)]
        assert len(matches) == 1
        drawn.extend(matches)
    tops, lefts, mirrored = zip(*drawn, strict=True)
    assert set(tops) == set(lefts) == set(range(9))
    assert 15 <= sum(mirrored) <= 45


@pytest.mark.parametrize("together", [1, 13, 1000])
@pytest.mark.parametrize("config", [PLAIN, CROP_FLIP])
def test_batches_that_are_gathered_together_equal_single_ones(monkeypatch, together, config):
    data = DeviceData(images(), config, CPU)
    monkeypatch.setattr(batches, "GATHERED_BYTES", together * 4 * 3 * 6 * 7)
    order = np.split(np.random.default_rng(0).permutation(40), [5, 10, 15, 20, 32, 39])
    one_by_one, found = (torch.Generator().manual_seed(1) for _ in range(2))
    expected = [data.train_batch(positions, one_by_one) for positions in order]
    made = list(data.train_batches(iter(order), found))
    assert len(made) == len(expected)
    for (x, y), (expected_x, expected_y) in zip(made, expected, strict=True):
        assert torch.equal(x, expected_x)
        assert torch.equal(y, expected_y)
        assert x.is_contiguous()
    assert list(data.train_batches([], found)) == []


@pytest.mark.parametrize("config", [FLIP, CROP_FLIP])
def test_augmentation_draws_only_from_its_generator(config):
    data = DeviceData(images(), config, CPU)
    before = torch.get_rng_state()
    indices = np.arange(20)
    first, again, other = (data.train_batch(indices, torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    plain = DeviceData(images(), PLAIN, CPU)
    assert torch.equal(data.train_batch(indices, None)[0], plain.train_batch(indices, None)[0])
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()
    assert torch.equal(plain.train_batch(indices, generator)[0], plain.train_batch(indices, None)[0])
    assert torch.equal(generator.get_state(), state)


def test_augmentation_of_features_is_refused():
    flat = from_arrays({"x_train": [[1.0]], "y_train": [0], "x_test": [[1.0]], "y_test": [0]}, "x")
    with pytest.raises(ConfigError, match=r"'augment'.*needs images.*\(1,\)"):
        DeviceData(flat, CROP_FLIP, CPU)


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 20), st.integers(0, 9))
def test_batch_order_uses_all_examples_before_it_repeats_one(examples, batch_size, batches, seed):
    order = list(batch_order(examples, batch_size, batches, np.random.default_rng(seed)))
    size = min(batch_size, examples)
    assert [len(batch) for batch in order] == [size] * batches
    drawn = np.concatenate(order).tolist()
    for start in range(0, len(drawn), examples):
        one_pass = drawn[start : start + examples]
        assert len(set(one_pass)) == len(one_pass)
        assert set(one_pass) <= set(range(examples))
    shorter = batch_order(examples, batch_size, 1, np.random.default_rng(seed))
    assert np.array_equal(next(shorter), order[0])


def test_more_mini_batches_than_are_kept_are_drawn_anew_with_the_same_draws(monkeypatch):
    """A generator is left in the same state, so what is drawn after the order is the same, too."""
    draw, kept, again = partial(batch_order, 7, 3, 20), np.random.default_rng(0), np.random.default_rng(0)
    order = Order(draw, kept)
    monkeypatch.setattr(batches, "KEPT_BATCHES", 4)
    redrawn = Order(draw, again)
    assert len(redrawn._kept) == 4
    assert (redrawn.batches, redrawn.examples) == (order.batches, order.examples) == (20, 60)
    for _ in range(2):
        assert [each.tolist() for each in redrawn] == [each.tolist() for each in order]
    assert kept.integers(1 << 40) == again.integers(1 << 40)


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 4), st.integers(0, 9))
def test_epoch_order_is_whole_epochs(examples, batch_size, epochs, seed):
    order = list(epoch_order(examples, batch_size, epochs, np.random.default_rng(seed)))
    full, rest = divmod(examples, batch_size)
    assert [len(batch) for batch in order] == ([batch_size] * full + [rest] * (rest > 0)) * epochs
    for epoch in np.concatenate(order).reshape(epochs, examples):
        assert sorted(epoch.tolist()) == list(range(examples))


def test_a_loaders_last_batch_of_a_pass_is_smaller_and_a_new_pass_starts_shuffled():
    order = list(loader_order(7, 3, 5, np.random.default_rng(0)))
    assert [len(batch) for batch in order] == [3, 3, 1, 3, 3]
    assert sorted(np.concatenate(order[:3]).tolist()) == list(range(7))
    assert np.concatenate(order[:3])[:6].tolist() != np.concatenate(order[3:]).tolist()
    assert len(set(np.concatenate(order[3:]).tolist())) == 6


def test_a_last_part_of_too_few_joins_the_one_before():
    parts = [part.tolist() for part in chunks(np.arange(7), 3, 2)]
    assert parts == [[0, 1, 2], [3, 4, 5, 6]]
    assert [part.size for part in chunks(np.arange(8), 3, 2)] == [3, 3, 2]
    assert [part.size for part in chunks(np.arange(1), 3, 2)] == [1]
    assert chunks(np.arange(0), 3, 2) == []
    assert [part.size for part in chunks(np.arange(7), 3)] == [3, 3, 1]
    # A loader that restarts: two mini-batches a pass, of three and of four.
    sizes = [batch.size for batch in loader_order(7, 3, 5, np.random.default_rng(0), 2)]
    assert sizes == [3, 4, 3, 4, 3]
