"""Settings of preprocessing: the normalisation and the augmentation of samples."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting

PUBLISHED_MOMENTS = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
}
"""Mean and deviation of each channel, images scaled to [0, 1], as HeteRo-Select's authors and many others have them."""


@dataclass(frozen=True)
class PreprocessingConfig(Settings):
    """Preprocessing: the normalisation and the augmentation of samples."""

    normalize: bool = setting(
        True,
        "subtract the training set's mean and divide by its standard deviation: of each channel of images and signals, "
        "of each feature of a table (synthetic: of all together; regression: never)",
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
