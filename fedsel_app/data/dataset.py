"""Data sets as plain arrays: bundled, generated, read from files in their published form, or a user's own."""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.caches import kept, kept_across_runs
from fedsel_app.config import ConfigError, DataConfig, plugins
from fedsel_app.config.data import DATA_FOLDERS, KINDS, MOST_CLASSES, TASKS, OwnDataConfig
from fedsel_app.config.settings import IN_LOG
from fedsel_app.data.arrays import (
    MOST_LISTED,
    SampleShape,
    check_owners,
    check_samples,
    check_targets,
    has_moments,
    moments,
    read_npz,
)
from fedsel_app.data.mapping import arguments_in, mapped, renumbered, scaled
from fedsel_app.data.partition import by_owner, by_time, holdout
from fedsel_app.messages.schema import read_schema
from fedsel_app.seeds import Purpose, stream

if TYPE_CHECKING:
    from fedsel_app.data.tables import Encoding

Stamp = tuple[str, int, int]
"""Path of a file, its size in bytes, and the time of its last change in nanoseconds."""
PARTS = ("train", "test")
MISFIT = f"Its data cannot be used in this run: {IN_LOG}."
"""All that a client tells of its data if they do not fit: more would answer questions about them."""
KEYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set for one of `fedsel_app.config.data.TASKS`. An unused part may have no examples.

    Attributes
    ----------
    x_train, x_test : uint8 images of shape (n, C, H, W), float32 features or int64 tokens of shape (n, ...), or several
        arrays by name, which are the fields of one structured array (n,)
    y_train, y_test : int64 of shape (n,), in [0, classes), for classification; float32 of shape (n, L), 0 or 1, for
        multi-label; float32 of shape (n,) or (n, L) for regression; int64 of shape (n, T), a token of the vocabulary or
        `IGNORED`, for next-token
    classes : number of outputs that a model needs: the number of classes, of labels L, or of tokens of the vocabulary,
        or 1
    mean, std : of each channel of the training samples (images scaled to [0, 1]), of each feature of a table, or of all
        features together, float32 of shape (C,) or (1,). A standard deviation of 0 becomes 1.
    stated : whether the data set itself states the mean and the standard deviation
    owners : the natural owner of each training example, int64 of shape (n,); None if the data set has no owners
    task : one of `fedsel_app.config.data.TASKS`
    names : names of the classes in their order; empty if they have none
    owner_names : names of the owners in their order
    table : how a table became the features; None for other data
    shared_owners : names of the owners of whose examples some are in the training part, and some in a test part that
        was drawn
    """

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: int
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    owners: NDArray[np.int64] | None = None
    task: str = "classification"
    names: tuple[str, ...] = ()
    owner_names: tuple[str, ...] = ()
    table: "Encoding | None" = None
    stated: bool = False
    shared_owners: tuple[str, ...] = ()

    @property
    def samples(self) -> NDArray[Any]:
        """Samples of the training part, or of the test part if that has none."""
        return self.x_train if len(self.x_train) else self.x_test

    @property
    def description(self) -> str:
        """Examples, shape of a sample, values of no known category, and classes, with those that have no example."""
        sizes = f"{len(self.y_train):,} training and {len(self.y_test):,} test examples of shape {self.sample_shape}"
        if self.table is not None and (unknown := sum(self.table.unknown)):
            sizes += f", {unknown:,} values of no known category"
        if self.task != "classification":
            return f"{sizes}, {self.task}, {self.classes} {'labels' if self.task == 'multi-label' else 'outputs'}"
        absent = np.setdiff1d(np.arange(self.classes), np.concatenate([self.y_train, self.y_test]))
        listed = ", ".join(map(str, absent[:MOST_LISTED])) + ", ..." * (absent.size > MOST_LISTED)
        return f"{sizes}, {self.classes} classes" + f" (no example has {listed})" * bool(absent.size)

    @property
    def record(self) -> dict[str, Any]:
        """What a run folder records of the data: a digest of every value, and what they are."""
        digest = hashlib.blake2b(repr((self.task, self.classes, self.names)).encode(), digest_size=16)
        arrays = [self.x_train, self.y_train, self.x_test, self.y_test]
        arrays += [] if self.owners is None else [self.owners]
        arrays += [self.mean, self.std] if self.stated else []
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return {
            "digest": digest.hexdigest(),
            "training_examples": len(self.y_train),
            "test_examples": len(self.y_test),
            "task": self.task,
            "classes": self.classes,
            "names": list(self.names),
        }

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of a model's outputs for one sample."""
        return (*self.y_train.shape[1:], self.classes) if self.task == "next-token" else (self.classes,)

    @property
    def sample_shape(self) -> SampleShape:
        """Shape of one sample, or of each of its arrays."""
        names = self.x_train.dtype.names
        return {name: self.x_train[name].shape[1:] for name in names} if names else self.x_train.shape[1:]


@kept
def load(config: DataConfig, seed: int) -> Dataset:
    """Load a data set, once for each run. `seed` draws the test part of digits, and all generated data.

    Files that have not changed are read only once in a process; a user's function is called in each run.

    Raises ConfigError if the files are absent or unreadable, or if they are no data set or do not fit a federation's
    schema.
    """
    try:
        return _fitting(config, seed)
    except ConfigError as error:
        error.told = MISFIT
        raise


def _fitting(config: DataConfig, seed: int) -> Dataset:
    """The data set, in the schema of its federation if it is a client's own."""
    if config.train_examples:
        return _drawn(load(replace(config, train_examples=0), seed), config.train_examples, seed)
    if not isinstance(config, OwnDataConfig) or not config.schema:
        return _read(config, seed)
    schema, source = read_schema(config.schema), f"The data in '{Path(config.data_path).resolve()}'"
    unscaled = replace(schema, mean=(), std=())
    if schema == unscaled:
        return mapped(_read(config, seed), schema, source)
    return scaled(load(OwnDataConfig.of(config, unscaled.text), seed), schema, source)


def _drawn(dataset: Dataset, count: int, seed: int) -> Dataset:
    """`dataset` with `count` of its training examples, stratified by `strata`; what it learned from all of them stays.

    Raises ConfigError if it has fewer.
    """
    if count > (total := len(dataset.y_train)):
        raise ConfigError(f"The 'train-examples' parameter must be at most the {total} training examples. Got {count}.")
    if count == total:
        return dataset
    _, rows = holdout(np.arange(total), dataset.y_train, count / total, stream(seed, Purpose.EXAMPLES))
    owners = None if dataset.owners is None else dataset.owners[rows]
    return replace(dataset, x_train=dataset.x_train[rows], y_train=dataset.y_train[rows], owners=owners)


def _read(config: DataConfig, seed: int) -> Dataset:
    if ":" not in config.data or config.from_datasets:
        return _loaded(config, seed, _stamps(config))
    signature = inspect.signature(plugins.load_object(config.data, "data"))
    arguments = ({"seed": seed} if "seed" in signature.parameters else {}) | config.arguments
    try:
        signature.bind(config, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"The 'data-arguments' of {config.data} must be arguments of its function: {error}."
        ) from error
    made = plugins.call(config.data, "data", config, **arguments)
    source = f"The function '{config.data}'"
    if isinstance(made, Dataset):
        made = replace(made, classes=_count(made.classes, source), names=tuple(map(str, made.names)))
        if made.owners is None or made.owner_names:
            return made
        owners, owner_names = check_owners(np.asarray(made.owners), source)
        return replace(made, owners=owners, owner_names=owner_names)
    if isinstance(made, tuple) and len(made) == len(KEYS):
        made = dict(zip(KEYS, made, strict=True))
    if not isinstance(made, Mapping):
        raise ConfigError(
            f"{source} must return a Dataset, or a dict or tuple of the arrays {', '.join(KEYS)}. "
            f"Got {type(made).__name__}."
        )
    return from_arrays({key: made[key] for key in made if key not in KEYS or key in _keys(config)}, source)


def _keys(config: DataConfig) -> tuple[str, ...]:
    """Keys of the arrays that are read: a client needs no test set of its own."""
    return KEYS[:2] if isinstance(config, OwnDataConfig) else KEYS


@kept_across_runs
def _loaded(config: DataConfig, seed: int, stamps: tuple[Stamp, ...]) -> Dataset:
    return (_hugging_face if config.from_datasets else LOADERS[config.data])(config, seed)


def _stamps(config: DataConfig) -> tuple[Stamp, ...]:
    """Path, size and time of the file of a data set, or of every file in its folder."""
    if config.data not in DATA_FOLDERS and not config.data_path:
        return ()
    path = config.folder if config.data in DATA_FOLDERS else Path(config.data_path).resolve()
    files = sorted(Path(folder, name) for folder, _, names in os.walk(path, followlinks=True) for name in names)
    stats = [(str(file), file.stat()) for file in files or [path] if file.exists()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def from_arrays(arrays: Mapping[str, Any], source: str, classes: int | None = None) -> Dataset:
    """Check the arrays x_train, y_train, x_test and y_test and make a data set of them.

    Images are uint8 of shape (n, H, W), (n, H, W, C) or (n, C, H, W) (the channel axis is the shorter of the two),
    features are floats of shape (n, ...), tokens are other whole numbers of shape (n, ...). A mapping of arrays is one
    sample in several arrays. Labels are integers from 0, one per sample. One of the two parts may be missing. The
    optional "owners" are the names or numbers of the owners of the training samples. The optional "classes" is the
    number of classes, for a part of a data set that may lack some, or of tokens of the vocabulary; without it, the
    labels and tokens determine the number. The optional "mean" and "std" of each channel (images scaled to [0, 1]) take
    the place of those of the training samples. `TARGETS` has the targets of each "task".

    Raises ConfigError, beginning with `source`, if the arrays are not a data set.
    """
    given = [part for part in PARTS if f"x_{part}" in arrays or f"y_{part}" in arrays] or PARTS
    missing = [key for part in given for key in (f"x_{part}", f"y_{part}") if key not in arrays]
    if missing:
        raise ConfigError(f"{source} lacks {', '.join(missing)}. It must have the keys {', '.join(KEYS)}.")
    task = str(arrays.get("task", "classification"))
    if task not in TASKS:
        raise ConfigError(f"{source} has the task {task!r}. It must be one of {', '.join(TASKS)}.")
    x = {part: check_samples(arrays[f"x_{part}"], f"x_{part}", source) for part in given}
    y = {part: check_targets(arrays[f"y_{part}"], f"y_{part}", source, task) for part in given}
    for part in given:
        if len(x[part]) != len(y[part]) or not any(map(len, x.values())):
            raise ConfigError(
                f"{source} has {len(x[part])} samples in x_{part} and {len(y[part])} labels in y_{part}. "
                "The numbers must be equal and at least 1."
            )
    [(x_train, y_train), (x_test, y_test)] = (
        (x[part], y[part]) if part in given else (x[given[0]][:0], y[given[0]][:0]) for part in PARTS
    )
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        raise ConfigError(
            f"{source} has training samples of shape {x_train.shape[1:]} ({x_train.dtype}) and test samples of shape "
            f"{x_test.shape[1:]} ({x_test.dtype}). They must be the same."
        )
    outputs = [_outputs(x, y, task) for x, y in ((x_train, y_train), (x_test, y_test))]
    if task in ("multi-label", "regression") and outputs[0] != outputs[1]:
        raise ConfigError(
            f"{source} has {outputs[0]} labels in y_train and {outputs[1]} in y_test. The numbers must be equal."
        )
    if "classes" in arrays and task in ("classification", "next-token"):
        classes = _count(arrays["classes"], source)
    if classes is not None and max(outputs) > classes:
        raise ConfigError(f"{source} has the label {max(outputs) - 1}, but only {classes} classes, numbered from 0.")
    owned, stated = y_train.size and "owners" in arrays, "mean" in arrays or "std" in arrays
    if owned and len(arrays["owners"]) != len(y_train):
        raise ConfigError(
            f"{source} has {len(y_train)} training samples and {len(arrays['owners'])} owners. The numbers must be "
            "equal."
        )
    owners, owner_names = check_owners(np.asarray(arrays["owners"]), source) if owned else (None, ())
    mean, std = _stated_moments(arrays, x_train, source) if stated else moments(x_train)
    return Dataset(
        *(x_train, y_train, x_test, y_test, classes or max(outputs), mean, std, owners, task),
        owner_names=owner_names,
        stated=stated,
    )


def load_surrogate(path: Path, dataset: Dataset) -> Dataset:
    """Load a surrogate set: x and y of an .npz file replace all examples of `dataset`; normalisation is the same.

    Raises ConfigError if the file is absent or unreadable, or has samples or targets of another kind.
    """
    source = f"The surrogate set '{path.resolve()}'"
    arrays = read_npz(path, source, ("x", "y"), "surrogate-path")
    if len(arrays) < 2:
        raise ConfigError(f"{source} must have the keys x and y.")
    parts = {f"{key}_{part}": arrays[key] for key in arrays for part in ("train", "test")}
    made = from_arrays(parts | {"task": np.array(dataset.task)}, source)
    x, y = made.x_test, made.y_test
    fits = made.classes <= dataset.classes if dataset.task == "classification" else made.classes == dataset.classes
    if x.shape[1:] != dataset.sample_shape or x.dtype != dataset.x_train.dtype or not fits:
        raise ConfigError(
            f"{source} has samples of shape {x.shape[1:]} ({x.dtype}) and {made.classes} classes, but the data set has "
            f"{dataset.sample_shape} ({dataset.x_train.dtype}) and {dataset.classes}. They must match."
        )
    return replace(dataset, x_train=x, y_train=y, x_test=x, y_test=y, owners=None)


def of_training_examples(dataset: Dataset, examples: NDArray[np.int64]) -> Dataset:
    """A data set with only the training examples at these positions, with the normalisation of `dataset`."""
    x, y = dataset.x_train[examples], dataset.y_train[examples]
    return replace(dataset, x_train=x, y_train=y, x_test=x, y_test=y, owners=None)


def _count(given: Any, source: str) -> int:
    array = np.asarray(given)
    if array.shape or array.dtype.kind not in "iu" or not 1 <= array <= MOST_CLASSES:
        raise ConfigError(f"{source} has 'classes' {given!r}. It must be a whole number from 1 to {MOST_CLASSES:,}.")
    return int(array)


def _stated_moments(
    arrays: Mapping[str, Any], x: NDArray[Any], source: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The "mean" and "std" of the channels. Raises ConfigError unless both are numbers (C,), and no "std" is 0."""
    if not arrays.keys() >= {"mean", "std"}:
        raise ConfigError(f"{source} has only one of mean and std. Add the other, or remove it.")
    mean, std = (np.asarray(arrays[key], np.float32) for key in ("mean", "std"))
    if not has_moments(x.dtype) or not mean.shape == std.shape == x.shape[1:2]:
        raise ConfigError(
            f"{source} has a mean of shape {mean.shape} and a std of shape {std.shape}. Each must have one number for "
            f"each channel or feature of samples that are numbers or images, here {x.shape[1:2]}."
        )
    if not np.isfinite(mean).all() or not (np.isfinite(std) & (std > 0)).all():
        raise ConfigError(f"{source} has a mean that is not finite, or a std that is not above 0. Correct them.")
    return mean, std


def _outputs(x: NDArray[Any], y: NDArray[Any], task: str) -> int:
    if task == "next-token" and x.dtype == np.int64:
        return int(max(x.max(initial=-1), y.max(initial=-1))) + 1
    if task in ("classification", "next-token"):
        return int(y.max(initial=-1)) + 1
    return y.shape[1] if y.ndim == 2 else 1


def _digits(config: DataConfig, seed: int) -> Dataset:
    from fedsel_app.data.sources.published import read_digits

    images, labels = read_digits()
    source = f"The data set 'digits' with 'test-fraction' {config.test_fraction}"
    return _divided({"x_train": images, "y_train": labels}, config, seed, source)


def _hugging_face(config: DataConfig, seed: int) -> Dataset:
    from fedsel_app.data.sources import hugging_face

    arrays, names = hugging_face.read(config, _arguments(config))
    return _divided(arrays, config, seed, hugging_face.title(config), names)


def _divided(
    arrays: dict[str, Any], config: DataConfig, seed: int, source: str, names: tuple[str, ...] = ()
) -> Dataset:
    """Data set of arrays, or of tables in place of the samples, and of the names of the classes.

    Without a test part, `test-fraction` of the training part becomes one, stratified or, with the argument `split`, of
    whole owners or the latest dates; with the empty argument `test` none of it, and with the empty argument `train` all
    of it. Tables are encoded as the training part or a schema says.
    """
    arguments = _arguments(config)
    shared_owners: Sequence[Any] = ()
    if "x_test" not in arrays and arguments.get("train") == "":
        arrays = {key.replace("train", "test"): value for key, value in arrays.items() if key != "owners"}
    elif "x_test" not in arrays and arguments.get("test") != "":
        y = arrays["y_train"]
        rng = stream(seed, Purpose.DATA)
        if arguments.get("split") == "owner":
            train, test = by_owner(arrays.get("owners"), config.test_fraction, rng, source)
        elif arguments.get("split") == "date":
            dates = [column.name for column in arrays.get("columns", ()) if column.kind == "date"]
            if len(dates) != 1:
                raise ConfigError(
                    f"{source} needs one input that is a date for the 'split' in 'data-arguments', and has "
                    f'{len(dates)}. Say which columns are dates, as in date=["DAY"], or leave others out of `input`.'
                )
            days = arrays["x_train"][dates[0]].fillna(-np.inf).to_numpy()
            train, test = by_time(days, config.test_fraction, source)
        else:
            train, test = holdout(np.arange(len(y)), y, config.test_fraction, rng)
        for key in ("x", "y"):
            whole = arrays[f"{key}_train"]
            taken = whole if isinstance(whole, np.ndarray) else whole.iloc
            arrays[f"{key}_train"], arrays[f"{key}_test"] = taken[train], taken[test]
        if "owners" in arrays:
            shared_owners = np.intersect1d(*(arrays["owners"][rows] for rows in (train, test)))
            arrays["owners"] = arrays["owners"][train]
    table = None
    if "columns" in arrays:
        from fedsel_app.data import tables

        parts = {key: arrays[key] for key in ("x_train", "x_test") if key in arrays}
        table = tables.fit(arrays["columns"], arguments, source, *parts.values())
        arrays |= {key: table.encode(part, source) for key, part in parts.items()} | table.scaling(arguments, source)
    made = from_arrays(arrays, source, len(names) or None)
    shared = tuple(map(str, shared_owners))
    made = replace(made, names=names, table=table, shared_owners=shared)
    if stated := arguments.get("classes"):
        if made.task == "classification":
            made = renumbered(made, stated, source)
        elif made.task == "multi-label" and len(stated) == made.classes:
            made = replace(made, names=tuple(map(str, stated)))
        else:
            raise ConfigError(f"{source} is for {made.description}: 'classes' in 'data-arguments' do not fit.")
    if table is None:
        return made
    mean, std = table.of_measures(made.mean, made.std)
    return replace(made, mean=mean, std=std)


def _arguments(config: DataConfig) -> dict[str, Any]:
    """`data-arguments`; for a client's own data without a test part, and with what the federation's schema says.

    Before a client knows the schema, its gaps are no mistake: the server says what takes their place.
    """
    if not isinstance(config, OwnDataConfig):
        return config.arguments
    arguments = config.arguments | {"test": ""}
    if arguments.get("train") == "":
        del arguments["train"]
    if not config.own_arguments:
        arguments = {name: value for name, value in arguments.items() if name not in (*KINDS, "categories")}
    if not config.schema:
        return {"missing": "median"} | arguments
    return arguments_in(read_schema(config.schema), arguments)


def _csv(config: DataConfig, seed: int) -> Dataset:
    from fedsel_app.data.sources import csv_table

    path = Path(config.data_path)
    source = f"The table '{path.resolve()}'"
    arrays, names = csv_table.read(path, _arguments(config), source)
    return _divided(arrays, config, seed, source, names)


def _npz(config: DataConfig, seed: int) -> Dataset:
    path = Path(config.data_path)
    source = f"The file '{path.resolve()}'"
    optional = ("owners", "task", "classes", "mean", "std")
    return from_arrays(read_npz(path, source, _keys(config), "data-path", optional), source)


def _torchvision(config: DataConfig, seed: int) -> Dataset:
    from fedsel_app.data.sources.published import read_torchvision

    arrays = read_torchvision(config.data, config.folder, download=config.download)
    return from_arrays(arrays, f"The folder '{config.folder}'")


def _image_folder(config: DataConfig, seed: int) -> Dataset:
    from fedsel_app.data.sources import image_folders

    parts = PARTS[:1] if isinstance(config, OwnDataConfig) else PARTS
    arrays, names = image_folders.read_image_folder(config.folder, config.image_size, parts)
    return _divided(arrays, config, seed, f"The folder '{config.folder}'", names)


LOADERS: dict[str, Callable[[DataConfig, int], Dataset]] = {
    "digits": _digits,
    "npz": _npz,
    "csv": _csv,
    **dict.fromkeys(("mnist", "fashion-mnist", "cifar10", "cifar100"), _torchvision),
    "image-folder": _image_folder,
}
