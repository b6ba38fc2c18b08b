"""Tiny-ImageNet as published (Le and Yang, "Tiny ImageNet Visual Recognition Challenge", CS 231N, 2015).

wnids.txt has the 200 class names in order; train/WNID/images/*.JPEG; val/images/*.JPEG with val/val_annotations.txt
(file, WNID and box, with tabs between them). The validation images are the test set: the published test images have no
labels.
"""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.arrays import absent
from fedsel_app.data.dataset import Dataset, from_arrays
from fedsel_app.data.sources.image_folders import read_pictures


def read(folder: Path, size: int) -> tuple[dict[str, NDArray[Any]], int]:
    """Read Tiny-ImageNet, scaled to `size` x `size` pixels if `size` is above 0.

    Returns
    -------
    arrays
        x_train, x_test : uint8 (n, 3, H, W); y_train, y_test : int64 (n,), positions in wnids.txt.
    classes
        Number of names in wnids.txt.

    Raises
    ------
    ConfigError
        If a file is absent or damaged, or names a class that wnids.txt does not have.
    """
    names, annotations = folder / "wnids.txt", folder / "val" / "val_annotations.txt"
    if not (folder / "train").is_dir() or not names.is_file() or not annotations.is_file():
        raise absent("tiny-imagenet", folder, "the published wnids.txt, train/WNID/images and val/val_annotations.txt")
    wnids = {name: label for label, name in enumerate(names.read_text(encoding="utf-8").split())}
    train = [
        (path, label) for name, label in wnids.items() for path in sorted((folder / "train" / name).rglob("*.JPEG"))
    ]
    test = []
    for line in annotations.read_text(encoding="utf-8").splitlines():
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in wnids:
            raise ConfigError(f"The file '{annotations}' gives {file!r} the class {wnid!r}, which wnids.txt lacks.")
        test.append((annotations.parent / "images" / file, wnids[wnid]))
    if not train or not test:
        raise absent("tiny-imagenet", folder, "the published images (train/WNID/images/*.JPEG, val/images/*.JPEG)")
    return read_pictures({"train": train, "test": test}, "RGB", size), len(wnids)


def load(config: DataConfig) -> Dataset:
    """Load Tiny-ImageNet from the folder of `config`."""
    folder = Path(config.data_path or "data/tiny-imagenet-200").resolve()
    arrays, classes = read(folder, config.image_size)
    return from_arrays(arrays, f"The folder '{folder}'", classes)
