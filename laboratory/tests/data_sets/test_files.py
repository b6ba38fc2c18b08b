"""Sets that must be fetched, from miniature files in the layout in which they are published."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load


def write_leaf(folder, part, file, writers):
    """A file in LEAF's form: grey levels / 255, written as JSON numbers."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    data = {user: {"x": (images / 255).tolist(), "y": labels} for user, (images, labels) in writers.items()}
    counts = [len(labels) for _, labels in writers.values()]
    content = {"users": list(writers), "num_samples": counts, "user_data": data}
    (folder / part / file).write_text(json.dumps(content), encoding="utf-8")


def grey(rng, count):
    return rng.integers(256, size=(count, 784), dtype=np.uint8)


def femnist(tmp_path):
    return load(DataConfig(data="laboratory.data_sets.femnist:load", data_path=str(tmp_path)), 0)


def test_femnist_by_writer(tmp_path):
    rng = np.random.default_rng(0)
    images = {"f2": grey(rng, 2), "f0": grey(rng, 1), "f1": grey(rng, 3)}
    write_leaf(tmp_path, "train", "all_data_0.json", {"f2": (images["f2"], [61, 3]), "f0": (images["f0"], [0])})
    write_leaf(tmp_path, "train", "all_data_1.json", {"f1": (images["f1"], [5, 5, 10])})
    write_leaf(tmp_path, "test", "all_data_0.json", {"f1": (images["f1"][:1], [7])})
    made = femnist(tmp_path)
    assert (made.sample_shape, made.classes, made.task) == ((1, 28, 28), 62, "classification")
    assert made.x_train.dtype == np.uint8
    expected = np.concatenate([images["f0"], images["f1"], images["f2"]]).reshape(-1, 1, 28, 28)
    assert np.array_equal(made.x_train, expected)
    assert made.y_train.tolist() == [0, 5, 5, 10, 61, 3]
    assert made.owners is not None
    assert made.owners.tolist() == [0, 1, 1, 1, 2, 2]
    assert made.y_test.tolist() == [7]


def test_femnist_absent_or_damaged(tmp_path):
    with pytest.raises(ConfigError, match=rf"'femnist' is absent from '{tmp_path}': put LEAF's folders train and test"):
        femnist(tmp_path)
    rng = np.random.default_rng(0)
    write_leaf(tmp_path, "train", "a.json", {"f0": (grey(rng, 2), [1, 2])})
    with pytest.raises(ConfigError, match="test/ has none"):
        femnist(tmp_path)
    write_leaf(tmp_path, "test", "a.json", {})
    with pytest.raises(ConfigError, match="test' has no writers"):
        femnist(tmp_path)
    write_leaf(tmp_path, "test", "a.json", {"f0": (grey(rng, 1), [1])})
    path = tmp_path / "train" / "b.json"
    for content in (
        '{"users": ["f1"], "user',
        '{"user_data": {"f1": {"x": [[0.5]], "y": [1]}}}',
        '{"user_data": {"f1": {"y": [1]}}}',
        json.dumps({"user_data": {"f1": {"x": [[2.0] * 784], "y": [1]}}}),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"b\.json' is damaged or not in LEAF's form.*preprocess\.sh"):
            femnist(tmp_path)
    write_leaf(tmp_path, "train", "b.json", {"f1": (grey(rng, 1), [62])})
    with pytest.raises(ConfigError, match=f"'{tmp_path}' has the label 62, but only 62 classes"):
        femnist(tmp_path)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def write_tiny(folder):
    """Classes in the order of wnids.txt, not of their names; one image is grey, as some of the published ones are."""
    flat = {name: np.full((64, 64, 3), level, np.uint8) for name, level in (("n02", 40), ("n01", 200))}
    for name, pixels in flat.items():
        for number in range(2):
            save(folder / "train" / name / "images" / f"{name}_{number}.JPEG", pixels, format="JPEG")
        (folder / "train" / name / f"{name}_boxes.txt").write_text("")
    save(folder / "val" / "images" / "val_0.JPEG", flat["n01"], format="JPEG")
    save(folder / "val" / "images" / "val_1.JPEG", flat["n02"][..., 0], format="JPEG")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t1\t2\t3\t4\n")
    (folder / "wnids.txt").write_text("n02\nn01\n")


def tiny(folder, **changed):
    return load(DataConfig(data="laboratory.data_sets.tiny_imagenet:load", data_path=str(folder), **changed), 0)


def test_tiny_imagenet(tmp_path):
    write_tiny(tmp_path)
    made = tiny(tmp_path)
    assert (made.sample_shape, made.classes, made.x_train.dtype) == ((3, 64, 64), 2, np.uint8)
    assert made.y_train.tolist() == [0, 0, 1, 1]
    assert made.y_test.tolist() == [1, 0]
    # Flat images come back from JPEG within a level or two.
    assert np.abs(made.x_train[:, :, 5, 5].astype(int) - [[40], [40], [200], [200]]).max() <= 2
    assert np.abs(made.x_test[:, :, 9, 0].astype(int) - [[200], [40]]).max() <= 2
    assert tiny(tmp_path, image_size=32).sample_shape == (3, 32, 32)


def test_tiny_imagenet_absent_or_damaged(tmp_path):
    with pytest.raises(ConfigError, match=rf"'tiny-imagenet' is absent from '{tmp_path}': put the published wnids"):
        tiny(tmp_path)
    write_tiny(tmp_path)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn09\t0\t0\t62\t62\n")
    with pytest.raises(ConfigError, match=r"gives 'val_0\.JPEG' the class 'n09', which wnids\.txt lacks"):
        tiny(tmp_path)
    write_tiny(tmp_path)
    broken = tmp_path / "train" / "n01" / "images" / "n01_1.JPEG"
    whole = broken.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        with pytest.raises(ConfigError, match=r"image '.*n01_1\.JPEG' is absent or damaged"):
            tiny(tmp_path)
    broken.write_bytes(whole)
    (tmp_path / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(ConfigError, match=r"image '.*val_1\.JPEG' is absent or damaged"):
        tiny(tmp_path)


@pytest.mark.timeout(120)
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path):
    (tmp_path / "train").mkdir()
    os.mkfifo(tmp_path / "train" / "a.json")
    with pytest.raises(ConfigError, match=" is not a file"):
        femnist(tmp_path)


def test_a_file_of_writers_with_endless_brackets_is_one_sentence(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.json").write_bytes(b"[" * 100_000)
    with pytest.raises(ConfigError, match="is damaged or not in LEAF's form: RecursionError"):
        femnist(tmp_path)
