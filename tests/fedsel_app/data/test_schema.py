"""What a server states of the data, and what a client does with a claim of that kind."""

import json

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.config.data import OwnDataConfig
from fedsel_app.data.arrays import moments, moments_of_sums, sums
from fedsel_app.data.dataset import load
from fedsel_app.data.mapping import schema_of
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.schema import MOST_CHARACTERS, read_schema

TABLE = "age,city,label\n1,Bonn,no\n2,Kiel,yes\n3,Ulm,no\n4,Bonn,yes\n"
ALL = 'train=""'
"""All rows are the test set."""


def csv(folder, text=TABLE, arguments="", name="server.csv"):
    (folder / name).write_text(text)
    return DataConfig(data="csv", data_path=str(folder / name), data_arguments=arguments)


def stated(config):
    return schema_of(load(config, 1), config)


def own(config, schema):
    return load(OwnDataConfig.of(config, schema.text), 1)


@pytest.mark.parametrize(
    "claim",
    [
        {"task": "all"},
        {"classes": True},
        {"classes": 10**6},
        {"names": ["a", "a"]},
        {"samples": {"": ["float32", -1]}},
        {"mean": [0.0] * 4, "std": [0.0] * 4},
        {"mean": [0.0] * 3, "std": [1.0] * 3},
        {"mean": [0.0] * 4, "std": [float("nan")] * 4},
        {"columns": [{"name": "age"}]},
        {"columns": [{"name": "age", "kind": "code"}]},
        {"code": "os:system"},
        "null",
        "[" * 10**5,
        " " * (MOST_CHARACTERS + 1),
    ],
)
def test_an_unsound_schema_is_refused(tmp_path, claim):
    values = json.loads(stated(csv(tmp_path, arguments=ALL)).text)
    text = claim if isinstance(claim, str) else json.dumps(values | claim)
    with pytest.raises(ConfigError, match="The schema that the server states cannot be read"):
        read_schema(text)


def test_a_file_is_read_into_the_servers_kinds(tmp_path):
    """Leading zeros of a category, which no client's table tells from numbers."""
    server = "zip,day,dose,label\n" + "".join(f"0{i % 3}1,2024-02-0{1 + i},{i}.5,{i % 2}\n" for i in range(6))
    schema = stated(csv(tmp_path, server, f'{ALL}, category=["zip"]'))
    form = 'input=["zip", "day", "dose"], category=["zip"]'
    mine = csv(tmp_path, "note;dose;day;label;zip\nx;2.5;2024-02-02;1;011\n", form, "mine.csv")
    assert own(mine, schema).x_train.tolist() == [[0, 1, 0, 19755, 2.5]]
    with pytest.raises(ConfigError, match=r"has 'x' in column 'dose', line 2, which is not a number\. Correct it\.$"):
        own(csv(tmp_path, "zip,day,dose,label\n001,2024-02-01,x,1\n", 'category=["zip"]', "wrong.csv"), schema)


def test_numbers_of_classes_are_their_texts(tmp_path):
    """A server with numbers and a client with texts, or the other way round; 0 is no class of (no, yes)."""
    numbers = TABLE.replace("no", "0").replace("yes", "1")
    schema = stated(csv(tmp_path, numbers, ALL))
    assert own(csv(tmp_path, "age,city,label\n1,Ulm,1\n", name="mine.csv"), schema).y_train.tolist() == [1]
    with pytest.raises(ConfigError, match=r"Correct the class 'no' \(2 examples\), .* only the stated classes 0, 1\."):
        own(csv(tmp_path, TABLE, name="texts.csv"), schema)
    with pytest.raises(
        ConfigError, match=r"Correct the class '0' \(2 examples\), .* only the stated classes no, yes\."
    ):
        own(csv(tmp_path, numbers, name="numbers.csv"), stated(csv(tmp_path, arguments=ALL, name="named.csv")))


@pytest.mark.parametrize("scaling", ["{age=[1, 2], city=[0, 1]}", "{age=[1]}", "{age=[1, 0]}"])
def test_a_scaling_that_does_not_fit_is_refused(tmp_path, scaling):
    with pytest.raises(ConfigError, match=r"scaling|std that is not above 0"):
        load(csv(tmp_path, arguments=f"scaling={scaling}"), 1)


def test_a_stated_scaling_takes_the_place_of_the_computed_one(tmp_path):
    data = load(csv(tmp_path, arguments="scaling={age=[45, 12]}"), 1)
    assert (data.stated, data.mean.tolist()[0], data.std.tolist()[0]) == (True, 45, 12)
    x, y = np.ones((4, 2, 3, 3), np.uint8), np.zeros(4, int)
    path, arrays = tmp_path / "x.npz", {"x_test": x, "y_test": y}
    np.savez(path, **arrays, mean=[0.25, 0.5], std=[1, 2])
    data = load(DataConfig(data="npz", data_path=str(path)), 1)
    assert (data.stated, data.mean.tolist(), data.std.tolist()) == (True, [0.25, 0.5], [1, 2])
    np.savez(tmp_path / "half.npz", **arrays, std=[1, 2])
    with pytest.raises(ConfigError, match="only one of mean and std"):
        load(DataConfig(data="npz", data_path=str(tmp_path / "half.npz")), 1)


def pictures(folder, **colours):
    """A picture of one colour in each class of a folder."""
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        Image.new("L" if isinstance(colour, int) else "RGB", (4, 4), colour).save(folder / name / "0.png")


def test_folders_of_pictures_need_one_part_and_grey_ones_become_coloured(tmp_path):
    pictures(tmp_path / "server" / "test", ant=(9, 8, 7), bee=(1, 2, 3))
    pictures(tmp_path / "mine" / "train", bee=200)
    pictures(tmp_path / "other", bee=200, dog=100)
    server = DataConfig(data="image-folder", data_path=str(tmp_path / "server"))
    assert len(load(server, 1).y_train) == 0
    data = own(DataConfig(data="image-folder", data_path=str(tmp_path / "mine")), stated(server))
    assert (data.x_train.shape, set(data.x_train.flatten().tolist()), data.y_train.tolist()) == (
        (1, 3, 4, 4),
        {200},
        [1],
    )
    with pytest.raises(ConfigError, match="Correct the class 'dog'"):
        own(DataConfig(data="image-folder", data_path=str(tmp_path / "other")), stated(server))
    named = DataConfig(data="image-folder", data_path=server.data_path, data_arguments='classes=["ant", "dog", "bee"]')
    data = own(DataConfig(data="image-folder", data_path=str(tmp_path / "other")), stated(named))
    assert (sorted(data.y_train.tolist()), data.classes) == ([1, 2], 3)


@pytest.mark.parametrize("images", [False, True])
def test_sums_of_parts_have_the_moments_of_the_whole(images):
    rng = np.random.default_rng(0)
    x = (
        rng.integers(0, 256, (50, 3, 4, 5)).astype(np.uint8)
        if images
        else rng.normal(3e4, 2, (50, 6)).astype(np.float32)
    )
    x[:, 0] = 7
    added = sums(x[:20]) + sums(x[20:21]) + sums(x[21:])
    mean, std = moments_of_sums(added, images=images)
    expected = moments(x)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(std, expected[1], rtol=1e-5)
    assert std[0] == 1


@pytest.mark.parametrize(
    "claimed",
    [
        [2, 1, 1],
        [5, np.nan, 1],
        [5, 100, 1],
        [5, 1],
        [5, 1e200, 1],
        [5, 0, -1],
    ],
)
def test_moments_that_cannot_be_are_refused(claimed):
    answer = EnrolAnswer(3, 5, moments=np.array(claimed, "<f8").tobytes())
    with pytest.raises(ConfigError, match="Client 3 sent no moments of 1 channels"):
        answer.sums(1)
    sound = np.array([5, 2, 4], "<f8")
    assert EnrolAnswer(3, 5, moments=sound.tobytes()).sums(1).tolist() == sound.tolist()
