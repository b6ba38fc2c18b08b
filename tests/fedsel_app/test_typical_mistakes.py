"""Typical mistakes: each command is answered by one sentence that says what to type."""

import numpy as np
import pytest

from simulation.workbench.cli import main

CHOICES = "See `fedsel {} --help`."
MISTAKES = {
    "rum": "Did you mean 'run'? See `fedsel --help`.",
    "run --rounds ten": "--rounds takes a whole number. Got 'ten'. " + CHOICES.format("run"),
    "run --set lr=0.1 --set lr=0.2": "Give 'lr' once: --set says 0.1, and then 0.2.",
    "run --rounds": "A value is missing: --rounds ROUNDS. " + CHOICES.format("run"),
    "run --engine rai": "--engine is one of auto, inline, ray. Got 'rai'. Did you mean 'ray'? " + CHOICES.format("run"),
    "run --set lr 0.1": "The word '0.1' belongs to no option; say --set lr=0.1.",
    "run --set lr": "--set takes KEY=VALUE. Got 'lr'.",
    "methods ort": "Got 'ort'. Did you mean 'oort'?",
    "report runs": "runs is not a run, but a folder with one, two. For one of them, use fedsel report runs/one. To",
    "run --set data=npz --set data-path=x.npz": "The file '{here}/x.npz' lacks y_train. It must have",
    "compare --strategies oort random --out both": "belongs to no option; say --strategies oort,random.",
    "compare --strategies oort,random": "`fedsel compare` needs --out FOLDER. " + CHOICES.format("compare"),
    "compare --strategies oort --seeds 1-3 --out x": "--seeds takes whole numbers separated by commas. Got '1-3'.",
    "report x.npz": "x.npz has no runs: it has neither comparison.json (of `fedsel compare`) nor rounds.jsonl (of a",
    "settings lerning": "No setting has 'lerning' in its key or its meaning. Did you mean 'learning'?",
    "run --strategy mine": "Name your own method like mine:Method, which is the class Method of mine.py.",
    "run --strategy mine.py:Mine": "names a module, not its file: write mine:Mine. Got 'mine.py:Mine'.",
    "run --seeds 1,2": "`fedsel run` carries out one run, and --seeds is for several: use fedsel compare.",
    "run -r 5": "There is no option -r; `fedsel run --help` lists them.",
    "run --set data=csv --set data-path=wine.csv --set data-arguments=label=kind": (
        "Got 'label=kind'. In a shell, keep the quotes like this: "
        '--set \'data-arguments=label="fine_label", test=""\'.'
    ),
    "run --set data=csv --set data-path=semicolons.csv": (
        "has '1,5' in column 'a', line 2, which is not a number. Correct it, or set in 'data-arguments'"
    ),
    "run --set data=image-folder --set data-path=absent": (
        "put images as train/CLASS/NAME.png (or .jpg) and test/CLASS/NAME.png, or as CLASS/NAME.png there, or set"
    ),
    "provision --clients 3 --out fed": "`fedsel provision` needs --server HOST with --clients N or --sign REQUEST",
    "provision --add 1 --revoke client-0 --out fed": "Give --add and --revoke in separate commands.",
    "provision --add 1 --port 5 --out fed": "Leave out --port: --add does not take it.",
    "run --set partition=iid --set alpha=0.1": (
        "With partition=iid, 'alpha' has no effect: leave it out, or set partition=dirichlet."
    ),
    "start absent": "is not the folder of a machine: it has no machine.toml. `fedsel provision` makes such folders.",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_the_answer_to_a_mistake_is_one_sentence_on_what_to_type(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "typical_method.py").write_text("class Mine:\n    pass\n", encoding="utf-8")
    (tmp_path / "semicolons.csv").write_text("a;b;label\n1,5;2;x\n", encoding="utf-8")
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "rounds.jsonl").touch()
    np.savez("x.npz", x_train=np.zeros((4, 2), np.float32))
    try:
        code = main(command.split())
    except SystemExit as left:
        code = left.code
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1), error
    assert error.startswith("fedsel: ")
    assert MISTAKES[command].format(here=tmp_path) in error
