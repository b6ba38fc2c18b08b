"""Images in folders, one for each class."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.data import composed
from fedsel_app.data.arrays import absent, hidden

if TYPE_CHECKING:
    from PIL import Image


Labelled = list[tuple[Path, int]]

PARTS = ("train", "test", "val", "valid", "validation")
"""Names of folders that are no classes."""
MOST_PIXELS = 2**24
"""Most pixels of one image (4,096 x 4,096). A larger image is hardly a training example and would use too much
memory."""


def read_image_folder(
    folder: Path, size: int, wanted: Sequence[str]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Read train/CLASS/... and test/CLASS/..., or only CLASS/...; the order of the class names numbers the classes.

    Of the parts train and test, only those `wanted` are read, and one of them may be missing.

    Images are scaled to `size` x `size` pixels if `size` is above 0; otherwise all must have one size. They become grey
    if all training images are grey, else RGB. Hidden files and folders (.NAME, __MACOSX) are not read.

    Raises ConfigError if a folder or its images are absent, damaged or of several sizes, if another file is among them,
    or if train and test differ in classes.

    Returns
    -------
    arrays : x_train and x_test, uint8 (n, C, H, W), C 1 or 3; y_train and y_test, int64 (n,). Without folders train
        and test there is no test part.
    names : names of the folders of classes
    """
    split = [part for part in ("train", "test") if (folder / part).exists()]
    try:
        folders = {part: _visible(folder / part) for part in wanted if part in split}
        if not folders:
            folders = {"train": _visible(folder)}
    except OSError as error:
        form = "images as train/CLASS/NAME.png (or .jpg) and test/CLASS/NAME.png, or as CLASS/NAME.png"
        missing = absent("image-folder", folder, form)
        raise (ConfigError(f"{missing} {error}") if folder.exists() else missing) from error
    (names, first), *others = folders.values()
    if differing := sorted({name for each, _ in others for name in set(names) ^ set(each)}):
        raise ConfigError(
            f"The folders train and test in '{folder}' must have the same classes. Only one has {', '.join(differing)}."
        )
    modes = set()
    for path, _ in first:
        with _opened(path) as image:
            modes.add(image.mode)
    labelled = {part: pictures for part, (_, pictures) in folders.items()}
    return read_pictures(labelled, "L" if modes == {"L"} else "RGB", size), tuple(names)


def _visible(root: Path) -> tuple[list[str], Labelled]:
    """Names of the classes, and their files, without what is hidden. Raises OSError if a class has no files."""
    from torchvision.datasets.folder import find_classes, make_dataset

    folders = {name: composed(name) for name in find_classes(root)[0] if not hidden(Path(name))}
    names = sorted(set(folders.values()))
    if parts := [name for name in names if name.lower() in PARTS]:
        raise ConfigError(
            f"Call the folder '{root / parts[0]}' train or test if it is a part of the images, and else anything but "
            f"{', '.join(PARTS)}: its name would be that of a class."
        )
    if not names:
        raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
    labels = {folder: names.index(name) for folder, name in folders.items()}
    samples = make_dataset(root, labels, is_valid_file=lambda path: not hidden(Path(path).relative_to(root)))
    return names, [(Path(path), label) for path, label in samples]


def read_pictures(parts: Mapping[str, Labelled], mode: str, size: int) -> dict[str, NDArray[Any]]:
    """x_PART, as `read_image_folder` returns it, and y_PART of each part, from its images with their labels.

    `mode` is L or RGB. Raises ConfigError if an image is absent, damaged or of another size.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for part, labelled in parts.items():
        arrays[f"x_{part}"] = _images([path for path, _ in labelled], mode, size)
        arrays[f"y_{part}"] = np.array([label for _, label in labelled], dtype=np.int64)
    return arrays


@contextmanager
def _opened(path: Path) -> Iterator["Image.Image"]:
    """Open an image. Raises ConfigError, here or in the block, unless it is an image of at most `MOST_PIXELS`."""
    from PIL import Image

    if not path.is_file():  # a named pipe would never end
        raise _damaged(path, "it is not a file")
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(path) as image,
        ):
            if image.width * image.height > MOST_PIXELS:
                raise _damaged(path, f"it has {image.width} x {image.height} pixels, more than {MOST_PIXELS:,}")
            yield image
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise _damaged(path, error) from error


def pixels(image: "Image.Image", mode: str, size: int) -> NDArray[Any]:
    """Pixels of a picture, scaled to `size` x `size` pixels if `size` is above 0; mode L: uint8 (H, W), RGB: (H, W, 3).

    A picture is turned as its EXIF tag says. What is transparent lies on white.

    Raises ConfigError if the pixels have more than 8 bits, or if the file has several pictures.
    """
    from PIL import Image, ImageOps

    if (pages := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":  # MPO: a photograph and its preview
        raise ConfigError(f"its file has {pages} pictures (pages or frames), of which it could only be the first")
    if image.mode.startswith(("I", "F")):
        raise ConfigError(
            f"its pixels have more than 8 bits ({image.mode}). Scale all to 8 bits, or save all for data=npz"
        )
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    image = image.convert(mode)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR) if size else image)


def _images(paths: Sequence[Path], mode: str, size: int) -> NDArray[Any]:
    """The images as uint8 (n, C, H, W), in Pillow's `mode`."""
    images: NDArray[Any] = np.empty(0)
    for index, path in enumerate(paths):
        with _opened(path) as opened:
            try:
                picture = pixels(opened, mode, size)
            except ConfigError as error:
                raise ConfigError(f"The image '{path}' cannot be used: {error}. Replace it, or remove it.") from error
        picture = picture.reshape(*picture.shape[:2], -1).transpose(2, 0, 1)
        images = images if index else np.empty((len(paths), *picture.shape), picture.dtype)
        if picture.shape != images.shape[1:]:
            raise ConfigError(
                f"The image '{path}' has {picture.shape[2]} x {picture.shape[1]} pixels, but the first one has "
                f"{images.shape[3]} x {images.shape[2]}. Set 'image-size' to scale all of them."
            )
        images[index] = picture
    return images


def _damaged(path: Path, error: Exception | str) -> ConfigError:
    return ConfigError(f"The image '{path}' is absent or damaged: {error}. Restore it, or remove it.")
