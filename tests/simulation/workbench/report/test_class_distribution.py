"""Class distribution: the bars are the clients' examples by class, and the sentences have the sums."""

import re

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import DataConfig, PartitionConfig
from simulation.workbench.cli import main
from simulation.workbench.comparison.labels import client_label_counts
from simulation.workbench.report.class_distribution import class_distribution_figure


def test_a_bar_is_stacked_of_a_clients_classes():
    counts = np.array([[3, 0, 2], [0, 4, 1]])
    bars = class_distribution_figure({"two clients": counts}).axes[0]
    assert bars.get_title() == "two clients"
    bottom = np.zeros(2)
    for label, patch in enumerate(bars.patches):
        values, edges, baseline = patch.get_data()
        np.testing.assert_array_equal(baseline[::2], bottom)
        np.testing.assert_array_equal(values[::2] - baseline[::2], counts[:, label])
        np.testing.assert_array_equal((edges[::2] + edges[1::2]) / 2, [0, 1])
        assert np.isnan(values[1::2]).all()
        bottom = values[::2]
    assert len({patch.get_facecolor() for patch in bars.patches}) == 3


def test_a_command_draws_a_panel_for_each_value_of_the_grid(tmp_path, capsys):
    picture = tmp_path / "new" / "picture.png"
    settings = ["--preset", "hetero-select-stable-table-1-small", "--seed", "3", "--grid", "alpha=0.05,1.0"]
    assert main(["partition", *settings, "--out", str(picture)]) == 0
    *sentences, last = capsys.readouterr().out.splitlines()
    assert last == f"Picture: {picture}"
    for sentence, alpha in zip(sentences, (0.05, 1.0), strict=True):
        counts = client_label_counts(
            DataConfig(data="digits"), PartitionConfig(partition="dirichlet", alpha=alpha), 12, 3
        )
        examples, held = counts.sum(axis=1), np.count_nonzero(counts, axis=1)
        assert sentence == (
            f"alpha={alpha}: 12 clients have {examples.min()} to {examples.max()} training examples "
            f"of {held.min()} to {held.max()} of 10 classes."
        )
    with Image.open(picture) as drawn:
        assert drawn.width > drawn.height > 300


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "picture.txt"], r"The --out of a picture must end in \.pdf, \.png, \.svg\. Got picture\.txt\."),
        (
            ["--set", "data=regression", "--out", "a.png"],
            "The class distribution cannot be drawn: a regression data set has ",
        ),
        (["--set", "partition=own", "--out", "a.png"], "The class distribution cannot be drawn: only the clients know"),
        (["--grid", "alpha=0.1,0", "--out", "a.png"], r"The 'alpha' parameter must be in \(0, "),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_leaves_no_file(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["partition", *arguments]) == 2
    assert re.match(f"fedsel: {sentence}", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []
