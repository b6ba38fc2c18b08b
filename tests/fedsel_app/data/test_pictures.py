"""Pictures as users have them: many formats, hidden files and folders; a message names the picture."""

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load

KINDS = {
    "grey8": lambda light: Image.fromarray((light * 255).astype("uint8")),
    "grey16": lambda light: Image.fromarray((light * 65535).astype("uint16")),
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


@pytest.mark.parametrize("kind", ["grey16", "floats"])
def test_pictures_of_more_than_8_bits_are_refused(tmp_path, kind):
    with pytest.raises(ConfigError, match=r"pears/0\.tiff' cannot be used: its pixels have more than 8 bits \("):
        read(written(tmp_path, kind))


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


def test_each_visible_file_of_a_class_is_a_picture_or_is_refused(tmp_path):
    for place, ending in enumerate((".JPG", ".jpeg", ".webp", ".jfif", ".bmp", ".tiff", ".gif", ".pgm")):
        for name, light in zip(("plums", "pears"), lights()[:, place], strict=True):
            (tmp_path / name).mkdir(exist_ok=True)
            KINDS["grey8"](light).save(tmp_path / name / f"{place}{ending}")
    assert len(read(tmp_path).y_train) + len(read(tmp_path).y_test) == 16
    (tmp_path / "pears" / "scan.nii").touch()
    with pytest.raises(ConfigError, match=r"scan\.nii' is absent or damaged: .* Restore it, or remove it"):
        read(tmp_path, test_fraction=0.3)


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
