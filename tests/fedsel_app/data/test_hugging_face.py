"""Data sets of `datasets`: saved folders, Parquet and the Hub's cache, made here; nothing is downloaded."""

import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load

datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="the extra 'datasets' is not installed")


def read(path, arguments="", **more):
    return load(DataConfig(data="hf", data_path=str(path), data_arguments=arguments, **more), 0)


def made(columns, **kinds):
    """A data set of these columns; `kinds` has the types of some of them."""
    plain = datasets.Dataset.from_dict(columns)
    for name, kind in kinds.items():
        plain = plain.cast_column(name, kind)
    return plain


def table(rows=10, **more):
    columns = {"age": np.arange(rows), "height": np.linspace(1.5, 2.0, rows), "label": np.arange(rows) % 2}
    return made(columns | more)


def images(rows, mode="L", size=(4, 5)):
    rng = np.random.default_rng(rows)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    pixels = [rng.integers(256, size=shape, dtype=np.uint8) for _ in range(rows)]
    labels = datasets.ClassLabel(names=["cat", "dog", "eel"])
    columns = {"picture": [Image.fromarray(array) for array in pixels], "kind": np.arange(rows) % 3}
    return made(columns, kind=labels, picture=datasets.Image()), np.stack(pixels)


def test_images_of_a_saved_folder_with_both_splits(tmp_path):
    (train, pixels), (test, tested) = images(6), images(3)
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(tmp_path / "saved"))
    found = read(tmp_path / "saved")
    assert np.array_equal(found.x_train[:, 0], pixels)
    assert np.array_equal(found.x_test[:, 0], tested)
    assert found.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert (found.classes, found.sample_shape, found.owners) == (3, (1, 5, 4), None)
    assert not list((tmp_path / "saved").rglob("cache-*"))  # nothing is written beside the user's files


def test_colour_makes_grey_images_colour_and_sizes_are_scaled(tmp_path):
    (grey, dull), (colour, bright) = images(2), images(2, "RGB")
    datasets.concatenate_datasets([grey, colour]).save_to_disk(str(tmp_path / "both"))
    found = read(tmp_path / "both", 'test="train"')
    assert found.sample_shape == (3, 5, 4)
    assert np.array_equal(found.x_train[0], np.stack([dull[0]] * 3))
    assert np.array_equal(found.x_train[2], bright[0].transpose(2, 0, 1))
    large, _ = images(2, size=(8, 8))
    datasets.concatenate_datasets([grey, large]).save_to_disk(str(tmp_path / "sizes"))
    with pytest.raises(ConfigError, match=r"images of several sizes\. Set 'image-size'"):
        read(tmp_path / "sizes", 'test="train"')
    assert read(tmp_path / "sizes", 'test="train"', image_size=7).sample_shape == (1, 7, 7)


def test_without_a_test_split_a_share_is_held_out(tmp_path):
    table(20, site=["b", "a"] * 10).to_parquet(tmp_path / "people.parquet")
    found = read(tmp_path / "people.parquet", 'owner="site", input=["age"]', test_fraction=0.25)
    assert (len(found.y_train), len(found.y_test)) == (15, 5)
    both = np.sort(np.concatenate([found.x_train[:, 0], found.x_test[:, 0]]))
    assert np.array_equal(both, np.arange(20))
    # Odd ages are of site a, which is owner 0.
    assert np.array_equal(found.owners, 1 - found.x_train[:, 0] % 2)


def test_labels_of_each_kind(tmp_path):
    columns = {"x": np.ones((4, 2, 3), np.float32), "word": ["dog", "cat", "dog", "ant"], "yes": [True, False] * 2}
    columns |= {"many": [[0, 1, 0]] * 4, "number": [0.5, 1.5, 2.5, 3.5]}
    made(columns).save_to_disk(str(tmp_path))
    common = 'input=["x"], test="train"'
    words = read(tmp_path, f'{common}, label="word"')
    assert (words.y_train.tolist(), words.classes, words.sample_shape) == ([2, 1, 2, 0], 3, (2, 3))
    assert read(tmp_path, f'{common}, label="yes"').y_train.tolist() == [1, 0, 1, 0]
    named = f'{common}, label="many", task="multi-label", classes='
    assert read(tmp_path, f'{named}["a", "b", "c"]').names == ("a", "b", "c")
    with pytest.raises(ConfigError, match=r"multi-label, 3 labels: 'classes' in 'data-arguments' do not fit"):
        read(tmp_path, f'{named}["a", "b"]')
    assert read(tmp_path, f'{common}, label="number", task="regression"').y_train.tolist() == columns["number"]


@pytest.mark.parametrize(
    ("columns", "arguments", "said"),
    [
        ({"x": [1.0], "a": [1]}, "", "does not say which of x, a has the labels. Name it"),
        (
            {"x": [[1.0]], "z": [[1.0]], "label": [1]},
            "",
            r'which of its columns x, z have the samples.*input=\["NAME"\]',
        ),
        (
            {"x": [[1.0]], "z": [1.0], "label": [1]},
            'input=["x", "z"]',
            "has the 'input' x, z in 'data-arguments'. It must be one column",
        ),
        ({"x": [1.0], "label": [1]}, 'input=["z"]', "no column 'z', which 'data-arguments' name. It has x, label"),
        ({"x": [1.0], "label": [1]}, 'train="all", test="none"', "has no split 'none'. It has all. .* test=\"all\""),
        ({"x": [1.0, None], "label": [1, 2]}, "", "no value in column 'x', row 2 .*missing=\"median\""),
        ({"x": [{"a": 1}], "label": [1]}, "", "has in 'x' neither numbers nor images"),
        ({"x": [[1.0], [1.0, 2.0]], "label": [1, 1]}, "", "arrays of several shapes in 'x'"),
    ],
)
def test_columns_that_are_no_data_set_are_refused_by_name(tmp_path, columns, arguments, said):
    made(columns).save_to_disk(str(tmp_path / "odd"))
    default = "" if "test=" in arguments else 'test="train"'
    with pytest.raises(ConfigError, match=said):
        read(tmp_path / "odd", ", ".join(filter(None, (arguments, default))))


def test_paths_without_a_data_set_are_refused_by_name(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd.parquet").write_bytes(b"no Parquet")
    for name, said in (("none", "none' does not exist"), ("empty", "neither"), ("odd.parquet", "neither")):
        with pytest.raises(ConfigError, match=said):
            read(tmp_path / name)


def test_a_data_set_of_the_hub_comes_from_its_cache(tmp_path, monkeypatch):
    """The cache of a Hub data set OWNER/NAME as `datasets` lays it out, made from Parquet."""
    table().to_parquet(tmp_path / "train.parquet")
    built = datasets.load_dataset(
        "parquet", data_files={"train": str(tmp_path / "train.parquet")}, cache_dir=str(tmp_path / "built")
    )
    files = [file["filename"] for file in built["train"].cache_files]
    folder = tmp_path / "cache" / "someone___people" / "default" / "0.0.0" / "0123456789abcdef"
    folder.parent.mkdir(parents=True)
    shutil.copytree(tmp_path.__class__(files[0]).parent, folder)
    for file in folder.glob("parquet-*.arrow"):
        file.rename(folder / file.name.replace("parquet", "people"))
    info = (folder / "dataset_info.json").read_text(encoding="utf-8")
    (folder / "dataset_info.json").write_text(info.replace('"dataset_name": "parquet"', '"dataset_name": "people"'))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    found = load(DataConfig(data="hf:someone/people"), 3)
    assert len(found.y_train) + len(found.y_test) == 10
    with pytest.raises(ConfigError, match="'hf:someone/else' can be read neither from the Hub nor from its cache"):
        load(DataConfig(data="hf:someone/else"), 0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'built' is a path here\. To read this path, set 'data' to hf"):
        load(DataConfig(data="hf:built"), 0)


def test_a_package_that_is_absent_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedsel\[datasets\]'"):
        read(tmp_path)
