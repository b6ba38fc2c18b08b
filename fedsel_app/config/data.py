"""Settings of the data set: its name, its files and the preparation of its samples."""

from dataclasses import dataclass
from pathlib import Path

from fedsel_app.config.plugins import unknown_name
from fedsel_app.config.settings import ConfigError, Settings, require, setting

DATA_FOLDERS = {
    "mnist": "data",
    "fashion-mnist": "data",
    "cifar10": "data",
    "cifar100": "data",
    "femnist": "data/femnist",
    "tiny-imagenet": "data/tiny-imagenet-200",
    "image-folder": "data/images",
    "ptb-xl": "data/ptb-xl",
}
"""Data set -> folder of its files, unless `data-path` names another."""
PUBLISHED_MOMENTS = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
}
"""Mean and deviation of each channel, images scaled to [0, 1], as HeteRo-Select's authors and many others have them."""
DATA_SETS = ("digits", "npz", *DATA_FOLDERS, "ecg", "synthetic", "regression")
"""Names of the data sets."""


@dataclass(frozen=True)
class DataConfig(Settings):
    """Data set: its name, its files and the preparation of its samples."""

    data: str = setting(
        "digits",
        "digits, npz, mnist, fashion-mnist, cifar10, cifar100, femnist, tiny-imagenet, image-folder, ptb-xl, ecg, "
        "synthetic, regression, or package.module:function",
    )
    data_path: str = setting(
        "", "the .npz file, or the folder of a set of files (empty: data/ where you run, or data/femnist and so on)"
    )
    download: bool = setting(False, "let torchvision download a set that is absent")
    image_size: int = setting(0, "tiny-imagenet, image-folder: scale images to this many pixels square (0: not)", low=0)
    normalize: bool = setting(
        True, "subtract the training set's mean and divide by its standard deviation (regression: never)"
    )
    moments: str = setting(
        "computed",
        "mean and deviation that normalize takes: those of the training set, or the constants published for a set",
        choices=("computed", *PUBLISHED_MOMENTS),
    )
    augment: str = setting(
        "none",
        "flip: mirror half of the images; crop-flip: also crop at random, after 4-pixel zero padding",
        choices=("none", "flip", "crop-flip"),
    )
    test_fraction: float = setting(
        0.2,
        "digits: share of the examples in the test set; synthetic, regression, ecg: test examples a training one",
        above=0.0,
        below=1.0,
    )
    synthetic_alpha: float = setting(1.0, "synthetic: how much the clients' true models differ", low=0.0)
    synthetic_beta: float = setting(1.0, "synthetic: how much the clients' inputs differ", low=0.0)
    synthetic_clients: int = setting(0, "synthetic, regression: clients that it is generated for (0: `clients`)", low=0)
    regression_clusters: int = setting(2, "regression: clusters J that the clients belong to; 1 is IID", low=1)
    regression_intercept: bool = setting(False, "regression: put a 1 behind each input")
    ptb_xl_hz: int = setting(100, "ptb-xl: samples a second of the records, 100 or 500", low=100, high=500)
    ecg_examples: int = setting(2000, "ecg: training records that are generated", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data not in DATA_SETS and ":" not in self.data:
            raise unknown_name("data", self.data, DATA_SETS)
        require(self.ptb_xl_hz in (100, 500), "ptb-xl-hz", "100 or 500", self.ptb_xl_hz)
        if self.data == "npz" and not self.data_path:
            raise ConfigError("The 'data' parameter npz needs the file's path in 'data-path'.")

    @property
    def folder(self) -> Path:
        """Folder of the files of a set of `DATA_FOLDERS`."""
        return Path(self.data_path or DATA_FOLDERS[self.data]).resolve()
