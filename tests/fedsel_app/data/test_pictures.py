"""Pictures as users have them: 16 bits, floats, hidden files and folders; a message names the picture."""

import numpy as np
import pytest
import torch
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig, PreprocessingConfig
from fedsel_app.data.batches import DeviceData
from fedsel_app.data.dataset import load

KINDS = {
    "grey8": lambda light: Image.fromarray((light * 255).astype("uint8")),
    "grey16": lambda light: Image.fromarray((light * 65535).astype("uint16")),
    "grey32": lambda light: Image.fromarray((light * 65535).astype("int32")),
    "floats": lambda light: Image.fromarray(light.astype("float32")),
}


def lights():
    """Plums are bright on the right and pears on the left, (2, 30, 12, 12) in [0, 1]."""
    rng, found = np.random.default_rng(0), np.empty((2, 30, 12, 12))
    for kind in range(2):
        found[kind] = rng.random((30, 12, 12)) * 0.3
        found[kind][:, :, :6] += 0.6 * kind
        found[kind][:, :, 6:] += 0.6 * (1 - kind)
    return found.clip(0, 1)


def written(folder, kind, ending="tiff"):
    for name, of_kind in zip(("plums", "pears"), lights(), strict=True):
        (folder / name).mkdir(parents=True)
        for number, light in enumerate(of_kind):
            KINDS[kind](light).save(folder / name / f"{number}.{ending}")
    return folder


def read(folder, **more):
    return load(DataConfig(data="image-folder", data_path=str(folder), **more), 1)


def normalised(data):
    [(x, _)] = DeviceData(data, PreprocessingConfig(), torch.device("cpu")).test_batches(100)
    return x


@pytest.mark.parametrize("kind", ["grey16", "grey32", "floats"])
def test_pictures_of_more_bits_keep_their_range(tmp_path, kind):
    eight, deep = (read(written(tmp_path / each, each)) for each in ("grey8", kind))
    assert (deep.x_train.dtype, deep.x_train.shape, deep.mean.shape) == (np.float32, eight.x_train.shape, (1,))
    assert np.abs(deep.x_train - eight.x_train / 255).max() < 1 / 255
    assert torch.abs(normalised(deep) - normalised(eight)).max() < 0.03
    assert read(tmp_path / kind, image_size=6).x_train.shape[1:] == (1, 6, 6)


def test_mixed_depths_are_brought_to_one_range(tmp_path):
    written(tmp_path, "grey16", "png")
    light = lights()[0, 0]
    KINDS["grey8"](light).save(tmp_path / "plums" / "eight.png")
    both = read(tmp_path, test_fraction=0.01).x_train
    assert both.max() <= 1
    assert np.abs(both[:, 0] - light).max(axis=(1, 2)).min() < 1 / 255
    Image.new("RGB", (12, 12), (255, 0, 0)).save(tmp_path / "plums" / "red.png")
    coloured = read(tmp_path, test_fraction=0.02).x_train
    assert coloured.dtype == np.uint8
    assert np.abs(coloured[:, 0] / 255 - light).max(axis=(1, 2)).min() < 1 / 255


def test_hidden_files_and_folders_are_no_data(tmp_path):
    plain = read(written(tmp_path / "plain", "grey8", "png"))
    folder = written(tmp_path / "hidden", "grey8", "png")
    picture = (folder / "pears" / "0.png").read_bytes()
    for path in (".ipynb_checkpoints/0-checkpoint.png", "__MACOSX/pears/._0.png", "pears/._0.png",
                 "plums/.ipynb_checkpoints/0-checkpoint.png"):  # fmt: skip
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(picture)
    found = read(folder)
    assert found.names == ("pears", "plums")
    assert np.array_equal(found.x_train, plain.x_train)
    assert np.array_equal(found.x_test, plain.x_test)


def test_files_that_are_not_read_are_counted_by_their_extension_and_all_others_are_read(tmp_path):
    for place, ending in enumerate((".JPG", ".jpeg", ".webp", ".jfif", ".bmp", ".tiff", ".gif", ".pgm")):
        for name, light in zip(("plums", "pears"), lights()[:, place], strict=True):
            (tmp_path / name).mkdir(exist_ok=True)
            KINDS["grey8"](light).save(tmp_path / name / f"{place}{ending}")
    assert (len(read(tmp_path).y_train) + len(read(tmp_path).y_test), read(tmp_path).unread) == (16, {})
    for path in ("plums/1.heic", "plums/2.HEIC", "pears/scan.nii", "README", ".DS_Store"):
        (tmp_path / path).touch()
    data = read(tmp_path, test_fraction=0.3)
    assert data.unread == {"README": 1, ".nii": 1, ".heic": 2}
    assert "4 files that are not read" in data.description
    assert "2 .heic" in data.description


def test_pictures_are_turned_as_their_tag_says_and_lie_on_white(tmp_path):
    colours = np.random.default_rng(0).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    upright, exif = Image.fromarray(colours), Image.Exif()
    exif[0x0112] = 6
    glass = np.dstack([colours, np.full((4, 6), 255, np.uint8)])
    glass[0, 0, 3] = 0
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    upright.save(tmp_path / "a" / "0.png")
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "a" / "1.png", exif=exif)
    Image.fromarray(glass).save(tmp_path / "b" / "0.png")
    whole = np.concatenate([read(tmp_path).x_train, read(tmp_path).x_test]).transpose(0, 2, 3, 1)
    white = np.where(np.arange(24).reshape(4, 6, 1) == 0, 255, colours)
    assert sorted(np.abs(x.astype(int) - colours).max() for x in whole)[:2] == [0, 0]
    assert min(np.abs(x.astype(int) - white).max() for x in whole) == 0


@pytest.mark.parametrize("ending", ["tiff", "gif"])
def test_a_file_of_several_pictures_is_refused(tmp_path, ending):
    folder = written(tmp_path, "grey8", ending)
    pages = [KINDS["grey8"](light) for light in lights()[0, :3]]
    pages[0].save(folder / "plums" / f"7.{ending}", save_all=True, append_images=pages[1:])
    with pytest.raises(ConfigError, match=rf"plums/7\.{ending}' cannot be used: its file has 3 pictures"):
        read(folder)


def test_folders_of_parts_are_no_classes(tmp_path):
    for part in ("Train", "Test"):
        written(tmp_path / part, "grey8", "png")
    with pytest.raises(ConfigError, match=r"Call the folder '.*Test' train or test"):
        load(DataConfig(data="image-folder", data_path=str(tmp_path)), 1)


def test_a_picture_that_cannot_be_used_is_named(tmp_path):
    folder = written(tmp_path, "floats")
    Image.fromarray(np.full((12, 12), np.nan, np.float32)).save(folder / "plums" / "7.tiff")
    with pytest.raises(ConfigError, match=r"plums/7\.tiff' cannot be used: it has pixels that are not finite"):
        read(folder)
    Image.new("RGB", (12, 12)).save(folder / "plums" / "7.tiff")
    with pytest.raises(ConfigError, match=r"pears/0\.tiff' cannot be used: its pixels are floats, and others have col"):
        read(folder)


def test_pictures_of_datasets_keep_their_range_and_are_named_by_their_row(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    columns = {"image": [KINDS["grey16"](light) for light in lights()[:, 0]], "label": [0, 1]}

    def saved(images, name):
        made = datasets.Dataset.from_dict(columns | {"image": images, "label": [0, 1] * (len(images) // 2)})
        made.cast_column("image", datasets.Image()).save_to_disk(str(tmp_path / name))
        arguments = 'shuffle=false, test="train"'
        return load(DataConfig(data="hf", data_path=str(tmp_path / name), data_arguments=arguments), 1)

    deep = saved(columns["image"], "deep")
    assert np.abs(deep.x_train[:, 0] - lights()[:, 0]).max() < 1 / 65535
    small = Image.new("L", (3, 3))
    with pytest.raises(ConfigError, match=r"'image', row 2, an image of 3 x 3 pixels, but the first one has 12 x 12"):
        saved([columns["image"][0], small], "small")
    with pytest.raises(ConfigError, match=r"'image', row 2, no image"):
        saved([columns["image"][0], None], "none")


def test_hidden_parquet_is_no_data(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    made = datasets.Dataset.from_dict({"x": [0.5, 1.5] * 5, "label": [0, 1] * 5})
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for path in ("train.parquet", ".ipynb_checkpoints/train-checkpoint.parquet"):
        made.to_parquet(tmp_path / path)
    data = load(DataConfig(data="hf", data_path=str(tmp_path)), 1)
    assert len(data.y_train) + len(data.y_test) == 10
