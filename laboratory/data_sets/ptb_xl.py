"""PTB-XL as PhysioNet publishes it: 12-lead electrocardiograms of 10 s, sampled at 100 or 500 Hz.

Wagner et al., "PTB-XL, a large publicly available electrocardiography dataset", Scientific Data 7:154, 2020.
This module reads ptbxl_database.csv and the records that the column filename_lr names (records100/*/*_lr.hea and .dat,
WFDB files), or the column filename_hr (records500/*/*_hr). The 21,799 records at 500 Hz take 5.2 GB as float32.

The six labels are the abnormalities of ISP (Sec. 4.3). Each is one SCP-ECG code in the column scp_codes, so
scp_statements.csv, which groups the codes, is not needed. A record has a label if it lists the code with any
likelihood, because rhythm codes such as AFIB always have likelihood 0. The column strat_fold splits by patient. Fold
10, in which people checked every record, is the test set; folds 1 to 9 are the training set. Owners are the recording
sites.
"""

import ast
import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, DataConfig, require
from fedsel_app.data.arrays import absent, refuse_pipes
from fedsel_app.data.dataset import Dataset, from_arrays

LABELS = ("AFIB", "PVC", "CLBBB", "CRBBB", "LAFB", "1AVB")
"""Atrial fibrillation, premature ventricular complex, complete left and right bundle branch block, left anterior
fascicular block, first-degree AV block."""

LEADS = ("I", "II", "III", "AVR", "AVL", "AVF", "V1", "V2", "V3", "V4", "V5", "V6")
SECONDS = 10
FILENAMES = {100: "filename_lr", 500: "filename_hr"}
"""Samples per second -> column with the records' names."""
TEST_FOLD = 10
COLUMNS = ("scp_codes", "strat_fold", "site")


def read(folder: Path, hz: int = 100) -> dict[str, NDArray[Any]]:
    """Read all records that the database names, with `hz` samples per second.

    Returns
    -------
    dict
        x_train, x_test : float32 (n, 12, 10 hz), in mV; y_train, y_test : float32 (n, 6), as `LABELS`; owners : int64
        (n,), the recording sites numbered from 0 (all records without a site have one more number); task.

    Raises
    ------
    ConfigError
        If the package wfdb is absent, or a file is absent or damaged.
    """
    database = folder / "ptbxl_database.csv"
    if not database.is_file():
        raise absent("ptb-xl", folder, f"PhysioNet's files (ptbxl_database.csv and the folder records{hz})")
    try:
        import wfdb
    except ImportError as error:
        raise ConfigError("The data set 'ptb-xl' needs the package wfdb: pip install wfdb.") from error
    columns = (FILENAMES[hz], *COLUMNS)
    try:
        with database.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        names = [row[FILENAMES[hz]] for row in rows]
        codes = [ast.literal_eval(row["scp_codes"]) for row in rows]
        y = np.array([[label in given for label in LABELS] for given in codes], dtype=np.float32)
        tested = np.array([int(float(row["strat_fold"])) for row in rows], dtype=np.int64) == TEST_FOLD
        sites = np.array([float(row["site"] or np.inf) for row in rows])
    except (OSError, csv.Error, KeyError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise ConfigError(
            f"The file '{database}' is damaged: it must have the columns {', '.join(columns)} as published ({error}). "
            "Fetch it again from PhysioNet."
        ) from error
    if tested.all() or not tested.any():
        raise ConfigError(f"The file '{database}' must have records in strat_fold {TEST_FOLD} and in others.")
    x = np.empty((len(rows), len(LEADS), SECONDS * hz), np.float32)
    for signal, name in zip(x, names, strict=True):
        signal[:] = _record(wfdb, folder, name, SECONDS * hz)
    owners = np.unique(sites[~tested], return_inverse=True)[1].astype(np.int64)
    return {
        "x_train": x[~tested],
        "y_train": y[~tested],
        "x_test": x[tested],
        "y_test": y[tested],
        "owners": owners,
        "task": np.array("multi-label"),
    }


def _record(wfdb: Any, folder: Path, name: str, samples: int) -> NDArray[np.float64]:
    """One record in mV, (12, samples), its leads in the order of `LEADS`."""
    refuse_pipes("ptb-xl", [folder / f"{name}{ending}" for ending in (".hea", ".dat")])
    try:
        signal, fields = wfdb.rdsamp(str(folder / name))
        leads = [lead.upper() for lead in fields["sig_name"]]
        ordered: NDArray[np.float64] = signal.T[[leads.index(lead) for lead in LEADS]]
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"The record '{folder / name}' (.hea and .dat) is absent or damaged: {error}. Fetch it from PhysioNet."
        ) from error
    if ordered.shape[1] != samples or not np.isfinite(ordered).all():
        raise ConfigError(
            f"The record '{folder / name}' must have {samples} finite samples a lead. Got {ordered.shape[1]}. "
            "Fetch it from PhysioNet."
        )
    return ordered


def load(config: DataConfig, *, hz: int = 100) -> Dataset:
    """Load PTB-XL with `hz` samples per second from the folder of `config`. Raises ConfigError for another `hz`."""
    require(hz in FILENAMES, "hz", "100 or 500", hz)
    folder = Path(config.data_path or "data/ptb-xl").resolve()
    return from_arrays(read(folder, hz), f"The folder '{folder}'")
