"""Published data sets: sample shape, outputs and number of examples, which are known without the files."""

from fedsel_app.config import DataConfig

Expected = tuple[tuple[int, ...], int, int]

SETS: dict[str, Expected] = {
    "mnist": ((1, 28, 28), 10, 60_000),
    "fashion-mnist": ((1, 28, 28), 10, 60_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
    "cifar100": ((3, 32, 32), 100, 50_000),
    # 90% of the 805,263 that LEAF counts.
    "laboratory.data_sets.femnist:load": ((1, 28, 28), 62, 724_736),
    "laboratory.data_sets.tiny_imagenet:load": ((3, 64, 64), 200, 100_000),
    # Version 1.0.3: 12 leads, 10 s at 100 Hz; 21,799 records, 2,198 of them in fold 10.
    "laboratory.data_sets.ptb_xl:load": ((12, 1000), 6, 19_601),
}
"""Setting -> shape of a sample, outputs of a model, and training examples."""


def expected_shape(config: DataConfig) -> Expected | None:
    """Shape of a sample, outputs of a model (`Dataset.classes`) and training examples of a set that must be fetched.

    None if only the files or the user's function show them, and for sets that need no files.
    """
    if config.data not in SETS:
        return None
    shape, classes, examples = SETS[config.data]
    if "tiny_imagenet" in config.data and config.image_size:
        shape = (shape[0], config.image_size, config.image_size)
    if "ptb_xl" in config.data:
        shape = (shape[0], 10 * config.arguments.get("hz", 100))
    return shape, classes, examples
