"""`fedsel data`: what was read, before anything trains."""

import numpy as np

from simulation.workbench.cli import main


def described(capsys, *arguments):
    assert main(["data", *arguments]) == 0
    return [line.strip() for line in capsys.readouterr().out.replace("│", " ").splitlines()]


def cells(lines, first):
    """The cells of the first line that begins with `first`."""
    return next(line.split() for line in lines if line.split()[:1] == [first])


def test_a_table_is_described_by_its_columns_classes_owners_and_clients(tmp_path, capsys):
    rows = [
        f"{i}.5,{'Bonn' if i % 2 else 'Ulm'},{'A' if i < 30 else 'B'},{'ill' if i % 4 else 'well'}" for i in range(40)
    ]
    rows[3] = ",Bonn,A,ill"
    (tmp_path / "t.csv").write_text("\n".join(["age,city,ward,label", *rows]))
    arguments = 'data-arguments=owner="ward", missing="median"'
    settings = ["data=csv", f"data-path={tmp_path / 't.csv'}", arguments, "partition=natural"]
    lines = described(capsys, "--clients", "2", *(word for each in settings for word in ("--set", each)))
    assert lines[0] == "Data: 32 training and 8 test examples of shape (3,), 2 classes"
    assert cells(lines, "age")[:5] == ["age", "number", "float64", "a", "number;"]
    assert cells(lines, "age")[-2:] == ["1", "0"]
    assert " ".join(cells(lines, "city")[3:-2]) == "one feature for each of 2 values: Bonn, Ulm"
    assert cells(lines, "ill") == ["ill", "24", "6"]
    assert cells(lines, "well") == ["well", "8", "2"]
    owners = next(line for line in lines if line.startswith("Owners: 2 with"))
    of_wards = [int(word) for word in (cells(lines, "0")[1], cells(lines, "1")[1])]
    assert f"A ({of_wards[0]}), B ({of_wards[1]})" in owners
    assert sum(of_wards) == 32


def test_what_makes_a_score_too_good_is_told(tmp_path, capsys):
    rows = [f"{10**8 + i},{20 + i % 40},{i % 7}.5,P{i // 10},{'ill' if i < 60 else 'well'}," for i in range(120)]
    rows = [f"{row}S{i},{2**70 + i},{2**63 * (i % 2) + i}" for i, row in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(["number,age,dose,patient,label,text,large,mixed", *rows]))
    settings = ["--set", "data=csv", "--set", f"data-path={tmp_path / 't.csv'}", "--set", "partition=natural"]

    def told(arguments):
        lines = described(capsys, *settings, "--set", f"data-arguments={arguments}", "--clients", "2")
        return [line for line in lines if line.startswith(("Column", "Test rows", "Owners with"))]

    *columns, owners = told('owner="patient"')
    assert [line.split("'")[1] for line in columns] == ["number", "text", "large", "mixed"]
    assert columns[0].startswith("Column 'number' has another text or whole number in each row")
    assert owners.startswith("Owners with rows in the training part and in the test part: 1")
    (repeated,) = told('owner="patient", split="owner", input=["dose"]')
    assert repeated.startswith("Test rows that are training rows: 30 of 30.")
    small = ["--clients", "2", "--cohort", "1", "--rounds", "1", "--set", 'data-arguments=owner="patient"']
    assert main(["run", *settings, *small, "--strategy", "random", "--out", str(tmp_path / "run")]) == 0
    warned = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Warning: ")]
    assert [line.split()[1] for line in warned] == ["Column"] * 4 + ["Owners"]


def test_other_data_are_described_by_their_range_and_problems_by_a_sentence(tmp_path, capsys):
    assert "Samples: uint8 of shape (1, 8, 8), from 0 to 255" in described(capsys)
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "x.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    lines = described(capsys, "--set", "data=npz", "--set", f"data-path={tmp_path / 'x.npz'}", "--clients", "30")
    assert "Samples: float32 of shape (2,), from 0 to 7" in lines
    assert next(line for line in lines if line.startswith("Clients: The 4 training examples are too few"))


def test_labels_are_no_classes_and_an_example_with_two_is_one_example(tmp_path, capsys):
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([[1, 1], [1, 0], [1, 1], [1, 1]])
    np.savez(tmp_path / "x.npz", x_train=x, y_train=y, x_test=x, y_test=y, task="multi-label")
    settings = ["data=npz", f"data-path={tmp_path / 'x.npz'}", "partition=iid", "cohort=2"]
    settings = ["--clients", "2", *(word for each in settings for word in ("--set", each))]
    lines = described(capsys, *settings)
    assert next(line.split()[1] for line in lines if "test examples ┃" in line) == "label"
    assert [cells(lines[-6:], client)[1] for client in "01"] == ["2", "2"]
    assert "of each client by label" in " ".join(lines)
    assert "class" not in " ".join(lines).lower()
