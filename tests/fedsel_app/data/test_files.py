"""Image folders."""

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def folder_set(folder, **changed):
    return load(DataConfig(data="image-folder", data_path=str(folder), **changed), 0)


def test_image_folder(tmp_path):
    rng = np.random.default_rng(1)
    images = rng.integers(256, size=(4, 6, 5, 3), dtype=np.uint8)
    for index, path in enumerate(("train/cat/a.png", "train/cat/b.png", "train/ant/x.png", "test/ant/y.png")):
        save(tmp_path / path, images[index])
    save(tmp_path / "test" / "cat" / "z.jpg", images[0])
    made = folder_set(tmp_path)
    assert made.y_train.tolist() == [0, 1, 1]  # ant, cat, cat
    assert np.array_equal(made.x_train, images[[2, 0, 1]].transpose(0, 3, 1, 2))
    assert np.array_equal(made.x_test[0], images[3].transpose(2, 0, 1))
    assert (made.y_test.tolist(), made.classes) == ([0, 1], 2)

    save(tmp_path / "train" / "cat" / "c.png", images[0][:3])
    with pytest.raises(ConfigError, match=r"c\.png' has 5 x 3 pixels, but the first one has 5 x 6. Set 'image-size'"):
        folder_set(tmp_path, download=True)  # another configuration: the set is read again
    assert folder_set(tmp_path, image_size=4).sample_shape == (3, 4, 4)


def test_image_folder_absent_or_damaged(tmp_path):
    with pytest.raises(ConfigError, match=rf"'image-folder' is absent from '{tmp_path}': put images as train/CLASS/"):
        folder_set(tmp_path)
    pixels = np.zeros((4, 4, 3), np.uint8)
    save(tmp_path / "train" / "a" / "0.png", pixels)
    save(tmp_path / "test" / "b" / "0.png", pixels)
    with pytest.raises(ConfigError, match=r"same classes. Only one has a, b"):
        folder_set(tmp_path)
    save(tmp_path / "test" / "a" / "0.png", pixels)
    (tmp_path / "train" / "b").mkdir()
    with pytest.raises(ConfigError, match=r"'image-folder' is absent.*\bb\b"):
        folder_set(tmp_path)
    (tmp_path / "train" / "b" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(ConfigError, match=r"b/0\.png' is absent or damaged"):
        folder_set(tmp_path)
