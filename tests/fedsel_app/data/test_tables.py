"""Tables as users have them: text, gaps, dates, odd headers. Each is read right, or refused with column and place."""

import gzip
import unicodedata

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fedsel_app.config import ConfigError, DataConfig, PreprocessingConfig
from fedsel_app.data.batches import DeviceData
from fedsel_app.data.dataset import load

ROWS = "0.5,1,no\n1.5,2,yes\n2.5,3,no\n3.5,4,yes\n4.5,5,no\n5.5,6,yes\n"


def read(folder, text, arguments="", encoding="utf-8", **more):
    path = folder / "table.csv"
    path.write_bytes(text.encode(encoding))
    path.touch()
    return load(DataConfig(data="csv", data_path=str(path), data_arguments=arguments, **more), 1)


def refused(folder, text, arguments=""):
    with pytest.raises(ConfigError) as raised:
        read(folder, text, arguments)
    return str(raised.value).removeprefix(f"The table '{folder / 'table.csv'}' ")


def rows(data):
    """All samples with their labels, sorted."""
    x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    return sorted(np.column_stack([x, y]).tolist())


PLAIN = [[0.5, 1, 0], [1.5, 2, 1], [2.5, 3, 0], [3.5, 4, 1], [4.5, 5, 0], [5.5, 6, 1]]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("a,b,label\n" + ROWS, ""),
        ("﻿a,b,label\n" + ROWS, ""),  # a byte-order mark
        ("a, b, label\n" + ROWS.replace(",", ", "), ""),
        ("a;b;label\n" + ROWS.replace(",", ";"), ""),
        ("a,b,label\n\n" + ROWS.replace("no", "no ") + "\n", ""),
        (",a,b,label\n" + "".join(f"{i},{row}\n" for i, row in enumerate(ROWS.split())), ""),  # pandas' index
        ("index,a,b,label\n" + "".join(f"{i},{row}\n" for i, row in enumerate(ROWS.split())), ""),
    ],
)
def test_the_same_table_in_many_forms(tmp_path, text, arguments):
    data = read(tmp_path, text, arguments)
    assert rows(data) == PLAIN
    assert (data.classes, data.names) == (2, ("no", "yes"))


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("a,a,label\n" + ROWS, "", "has two columns 'a'. Rename one of them, or remove it."),
        ("a,,label\n" + ROWS, "", "has no name for column 2. Name it in the first line."),
        ("a,b,label\n" + ROWS + "7,8\n", "", "has 2 values in line 8, but 3 columns."),
        ("a,y\n", "", "has no rows below the names of its columns."),
        ("a,y\n1,2\n", "", "does not say which of a, y has the labels. Name it: --set"),
        ("a,b,label\n" + ROWS + "7,8,\n", "", "has no label in column 'label', line 8 (1 in all)."),
        ("a,b,label\n" + ROWS + ",8,no\n", "", "has no value in column 'a', line 8 (1 in all). Say what takes its"),
        ("day,label\n12.01.2024,0\n13.02.2024,1\n", "", "has '12.01.2024' in column 'day', line 2 (2 values in"),
        ("sep=;\na;b;label\n1;2;0\n", "", "begins with Excel's line 'sep=;'. Remove this line."),
        ("a,b,label\n1,2,3\n1,2,3.5 EUR\n", 'task="regression"', "has '3.5 EUR' in column 'label', line 3, which is"),
        ("a,b,label\n" + ROWS + "n.a.,8,no\n", "", "has 'n.a.' in column 'a', line 8, which is not a number. Correct"),
        ("a,b,label\n" + ROWS + "inf,8,no\n", "", "has 'inf' in column 'a', line 8, which is not a number."),
        ("a,b,label\n2024-02-30,2,3\n2024-02-01,2,3\n", "", "has '2024-02-30' in column 'a', line 2, which is not a "
         "date."),
        ("a,b,label\n" + "".join(f"n{i}x,1,0\n" for i in range(200)), "", "different texts in column 'a'. In"),
        ("a,b,owner,label\n1,2,,0\n", 'owner="owner"', "has no owner in column 'owner', line 2"),
        ("a,label\n1,0\n2,-1\n", "", "has '-1' in column 'label', line 3, which is not a number of a class, from 0 to "
         "99,999. Correct it, or set in 'data-arguments' classes="),
        ("a,b,label\n" + ROWS, 'input=["a", "label"]', "is to have 'label' as an input"),
        ("a,label\n" + "".join(f"{10**9 + i / 8},{i % 2}\n" for i in range(20)), "", "has numbers in column 'a'"),
        ("a,label\n1e300,0\n2,1\n", "", "has values in column 'a' that are not finite as float32"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_column_and_place(tmp_path, text, arguments, said):
    assert refused(tmp_path, text, arguments).startswith(said) or said in refused(tmp_path, text, arguments)


def test_letters_have_one_form(tmp_path):
    text = "größe,owner,label\n" + "".join(f"{i},Jörg,{'für' if i % 2 else 'wider'}\n" for i in range(8))
    mixed = "".join(
        unicodedata.normalize("NFD", line) if i % 3 == 0 else line for i, line in enumerate(text.splitlines(True))
    )
    arguments = unicodedata.normalize("NFD", 'owner="owner", input=["größe"], classes=["wider", "für"]')
    data = read(tmp_path, mixed, arguments)
    assert (data.names, data.owner_names) == (("wider", "für"), ("Jörg",))
    assert np.bincount(np.concatenate([data.y_train, data.y_test])).tolist() == [4, 4]


def test_ids_of_any_size_stay_apart(tmp_path):
    ids = [2**63 + 1, 2**63 + 2, 2**65, 2**65 + 1]
    data = read(tmp_path, "a,id,label\n" + "".join(f"{i},{ids[i % 4]},{i // 4 % 2}\n" for i in range(40)), 'owner="id"')
    assert sorted(map(int, data.owner_names)) == ids


def test_a_test_part_has_owners_of_its_own_if_asked(tmp_path):
    text = "a,who,label\n" + "".join(f"{i},P{i // 5},{i % 2}\n" for i in range(50))
    assert len(read(tmp_path, text, 'owner="who"').shared_owners) > 5
    data = read(tmp_path, text, 'owner="who", split="owner"', test_fraction=0.3)
    patients = [set((x[:, 0] // 5).astype(int).tolist()) for x in (data.x_train, data.x_test)]
    assert (list(map(len, patients)), patients[0] & patients[1], data.shared_owners) == ([7, 3], set(), ())
    assert refused(tmp_path, text, 'split="owner", input=["a"]').startswith("has 0 owners, but 'split'")


def test_a_test_part_by_date_has_the_latest_rows_and_no_day_of_the_others(tmp_path):
    days = [3, 1, 5, 5, 2, 4, 5, 1, 6, 2]
    text = "day,born,a,label\n" + "".join(f"2024-03-0{day},1990-01-0{day},{i},{i % 2}\n" for i, day in enumerate(days))
    arguments = 'split="date", input=["day", "a"]'
    data = read(tmp_path, text, arguments, test_fraction=0.2)
    assert data.x_test[:, 1].tolist() == [2, 3, 6, 8]  # a fifth are two rows, and two more are of the same day
    assert data.x_train[:, 1].tolist() == [0, 1, 4, 5, 7, 9]
    both = "needs one input that is a date for the 'split' in 'data-arguments', and has 2"
    assert refused(tmp_path, text, 'split="date"').startswith(both)
    with pytest.raises(ConfigError, match="Lower 'test-fraction'"):
        read(tmp_path, text, arguments, test_fraction=0.95)


def test_a_packed_table_is_refused(tmp_path):
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(b"a,label\n" + b"1,0\n2,1\n" * 5))
    with pytest.raises(ConfigError, match=r"is packed\. Unpack it, and set 'data-path' to the \.csv"):
        load(DataConfig(data="csv", data_path=str(tmp_path / "table.csv.gz")), 1)


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / "table.csv").write_bytes("a,label\nMünchen,1\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="is not text in UTF-8: save it"):
        load(DataConfig(data="csv", data_path=str(tmp_path / "table.csv")), 1)


def people(folder, missing):
    """A table with gaps, categories and dates, its encoding by fedsel, and the same by scikit-learn."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 90, 60).astype(float),
            "city": rng.choice(["Bonn", "Kiel", "Ulm"], 60),
            "seen": pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d"),
            "floor": rng.choice(["1", "2", "EG"], 60),
            "label": rng.choice(["ill", "well"], 60),
        }
    )
    table.loc[rng.permutation(60)[:12], "age"] = np.nan
    table.loc[rng.permutation(60)[:9], "city"] = np.nan
    table.to_csv(folder / "people.csv", index=False)
    arguments = f'category=["floor"], missing="{missing}"'
    data = load(DataConfig(data="csv", data_path=str(folder / "people.csv"), data_arguments=arguments), 1)
    days = (pd.to_datetime(table["seen"]) - pd.Timestamp("1970-01-01")).dt.days
    table["seen"] = days
    return data, table, SimpleImputer(strategy="median", add_indicator=missing == "indicator")


def test_gaps_and_categories_are_those_of_scikit_learn(tmp_path):
    data, table, numbers = people(tmp_path, "median")
    train, coder = table.set_index("seen").loc[data.x_train[:, -4].astype(int)].reset_index(), OneHotEncoder()
    categories = make_pipeline(SimpleImputer(strategy="most_frequent"), coder)
    expected = ColumnTransformer(
        [("age", numbers, ["age"]), ("city", categories, ["city"]), ("seen", "passthrough", ["seen"]),
         ("floor", coder, ["floor"])]
    )  # fmt: skip
    expected.set_params(sparse_threshold=0)
    np.testing.assert_array_equal(data.x_train, expected.fit_transform(train).astype(np.float32))


def test_an_indicator_tells_the_gaps(tmp_path):
    data, table, numbers = people(tmp_path, "indicator")
    assert [column.width for column in data.table.columns] == [2, 4, 1, 3]
    by_day = table.set_index("seen").loc[data.x_train[:, 6].astype(int)]
    np.testing.assert_array_equal(data.x_train[:, :2], numbers.fit_transform(by_day[["age"]]).astype(np.float32))
    assert data.x_train[:, 5].tolist() == by_day["city"].isna().astype(float).tolist()
    assert data.table.missing == (12, 9, 0, 0)


def test_only_measures_of_the_training_part_are_normalised(tmp_path):
    data, *_ = people(tmp_path, "median")
    assert data.mean[0] == pytest.approx(data.x_train[:, 0].mean())
    assert data.mean[1:4].tolist() == [0, 0, 0]
    assert data.std[1:4].tolist() == [1, 1, 1]
    [(x, _)] = DeviceData(data, PreprocessingConfig(), torch.device("cpu")).test_batches(100)
    assert set(x[:, 1:4].flatten().tolist()) == {0.0, 1.0}
    assert x[:, 0].tolist() == pytest.approx(((data.x_test[:, 0] - data.mean[0]) / data.std[0]).tolist())


def of_splits(folder, arguments="", **tables):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    made = {name: datasets.Dataset.from_pandas(table) for name, table in tables.items()}
    datasets.DatasetDict(made).save_to_disk(str(folder / "saved"))
    return load(DataConfig(data="hf", data_path=str(folder / "saved"), data_arguments=arguments), 1)


def test_values_that_training_lacks_are_counted(tmp_path):
    train = pd.DataFrame({"x": ["a", "b", "a", "b"], "label": [0, 1, 0, 1]})
    test = pd.DataFrame({"x": ["a", "c", "c"], "label": [0, 1, 1]})
    data = of_splits(tmp_path, train=train, test=test)
    assert data.x_test.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert data.table.unknown == (2,)


def test_leading_zeros_of_a_category_are_kept(tmp_path):
    text = "zip,label\n" + "".join(f"0{i % 3}1,{i % 2}\n" for i in range(12))
    assert read(tmp_path, text, 'category=["zip"]').table.columns[0].categories == ("001", "011", "021")


def test_truth_values_with_gaps_are_numbers_and_dates_of_any_year_are_days(tmp_path):
    text = "b,d,label\n" + "True,0001-01-01,x\n,2024-01-01,y\nFalse,9999-12-31,x\nTrue,2024-01-02,y\n" * 5
    data = read(tmp_path, text, 'missing="median", test=""')
    assert [column.kind for column in data.table.columns] == ["number", "date"]
    assert data.x_train[:4].tolist() == [[1, -719162], [1, 19723], [0, 2932896], [1, 19724]]


def test_classes_with_names_may_be_any_numbers(tmp_path):
    data = read(tmp_path, "a,label\n" + "5,-1\n6,1\n" * 5, 'classes=["1", "-1"], test=""')
    assert data.names == ("1", "-1")
    assert data.y_train.tolist() == [1, 0] * 5


def test_a_whole_number_is_the_same_category_beside_others_and_alone(tmp_path):
    """The columns of both files are of floats; only the first has one that is not whole."""
    parts = {"train": [1.5, 2.0], "test": [2.0, 2.0]}
    tables = {name: pd.DataFrame({"a": values, "label": [0, 1]}) for name, values in parts.items()}
    data = of_splits(tmp_path, 'category=["a"]', **tables)
    assert data.table.columns[0].categories == ("1.5", "2")
    assert data.x_test.tolist() == [[0, 1]] * 2


def test_the_index_of_pandas_is_no_feature(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    table = pd.DataFrame({"a": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], "label": [0, 1] * 3})
    moved = table.set_axis(pd.Index([5, 4, 3, 2, 1, 0]))
    named = table.set_axis(pd.Index([3, 1, 2, 9, 8, 7], name="patient"))
    for number, each in enumerate((table, moved, named)):
        each.to_parquet(tmp_path / f"{number}.parquet")
        assert load(DataConfig(data="hf", data_path=str(tmp_path / f"{number}.parquet")), 1).sample_shape == (1,)
    datasets.Dataset.from_pandas(moved).save_to_disk(str(tmp_path / "saved"))
    assert load(DataConfig(data="hf", data_path=str(tmp_path / "saved")), 1).sample_shape == (1,)
    config = DataConfig(data="hf", data_path=str(tmp_path / "2.parquet"), data_arguments='owner="patient"')
    owned, of_sample = load(config, 1), dict(zip(named["a"], map(str, named.index), strict=True))
    assert [owned.owner_names[o] for o in owned.owners] == [of_sample[x] for x in owned.x_train[:, 0].tolist()]


@pytest.mark.parametrize("arguments", ["", 'classes=["00", "01", "1"]'])
def test_labels_and_owners_with_leading_zeros_are_names(tmp_path, arguments):
    body = "".join(f"{i},{label},{label}\n" for i, label in enumerate(["01", "1", "00"] * 2))
    data = read(tmp_path, "a,label,who\n" + body, f'test="", owner="who" {arguments and ", " + arguments}')
    assert data.names == ("00", "01", "1")
    assert data.y_train.tolist() == [1, 2, 0] * 2
    assert [data.owner_names[owner] for owner in data.owners] == ["01", "1", "00"] * 2
    amounts = read(tmp_path, "a,label\n" + "0,00\n1,01\n2,10\n" * 2, 'test="", task="regression"')
    assert amounts.y_train.tolist() == [0, 1, 10] * 2


@pytest.mark.parametrize("owners", [["Kiel", "Bonn", "Kiel", "Ulm"], [7, -3, 7, 10**12]])
def test_owners_are_names_or_numbers_on_every_path(tmp_path, owners):
    x, y = np.arange(4, dtype=np.float32)[:, None], np.array([0, 1, 0, 1])
    np.savez(tmp_path / "o.npz", x_train=x, y_train=y, x_test=x, y_test=y, owners=np.array(owners))
    table = pd.DataFrame({"x": x[:, 0], "label": y, "who": owners})
    pd.concat([table] * 2).to_csv(tmp_path / "o.csv", index=False)
    numbers = np.unique(owners, return_inverse=True)[1].tolist()
    assert of_splits(tmp_path, 'owner="who"', train=table, test=table).owners.tolist() == numbers
    assert load(DataConfig(data="npz", data_path=str(tmp_path / "o.npz")), 1).owners.tolist() == numbers
    found = load(DataConfig(data="csv", data_path=str(tmp_path / "o.csv"), data_arguments='owner="who"'), 1)
    of_sample = dict(zip(x[:, 0].tolist(), map(str, owners), strict=True))
    assert [found.owner_names[o] for o in found.owners] == [of_sample[v] for v in found.x_train[:, 0].tolist()]


def test_a_class_label_among_the_inputs_is_a_category(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    made = datasets.Dataset.from_dict({"c": [0, 1, 1, 0], "label": [0, 1, 0, 1]})
    made.cast_column("c", datasets.ClassLabel(names=["z", "a"])).save_to_disk(str(tmp_path / "d"))
    arguments = 'label="label", test="train"'
    data = load(DataConfig(data="hf", data_path=str(tmp_path / "d"), data_arguments=arguments), 1)
    assert data.x_train.tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]  # a, z
