"""Typical mistakes: each command is answered by one sentence that says what to type."""

import numpy as np
import pytest

from simulation.workbench.cli import main

CHOICES = "See `fedsel {} --help`."
MISTAKES = {
    "rum": "invalid choice: 'rum' (choose from 'run', 'deploy', ",
    "run --rounds ten": "argument --rounds: invalid int value: 'ten'. " + CHOICES.format("run"),
    "run --set lr=0.1 --set lr=0.2": "Give 'lr' once: --set says 0.1, and then 0.2.",
    "run --set lr 0.1": "`fedsel run` cannot read '0.1': --help lists its options, and a setting is given",
    "run --set lr": "--set takes KEY=VALUE. Got 'lr'.",
    "check ort": "Got 'ort'. Did you mean 'oort'?",
    "report runs": "runs has no runs: it has neither comparison.json (of `fedsel compare`) nor rounds.jsonl (of a run)",
    "run --set data=npz --set data-path=x.npz": "The file '{here}/x.npz' lacks y_train. It must have",
    "compare --strategies oort,random": "the following arguments are required: --out. " + CHOICES.format("compare"),
    "compare --strategies oort --seeds 1-3 --out x": "--seeds takes whole numbers separated by commas. Got '1-3'.",
    "settings lerning": "No setting has 'lerning' in its key or its meaning. Did you mean 'learning'?",
    "run --strategy mine": "Name your own method like mine:Method, which is the class Method of mine.py.",
    "run --strategy mine.py:Mine": "names a module, not its file: write mine:Mine. Got 'mine.py:Mine'.",
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
    "provision --add 1 --revoke client-0 --out fed": "argument --revoke: not allowed with argument --add",
    "provision --add 1 --port 5 --out fed": "A new federation needs --server HOST with --clients N or --sign REQUEST",
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
    (tmp_path / "runs").mkdir()
    np.savez("x.npz", x_train=np.zeros((4, 2), np.float32))
    try:
        code = main(command.split())
    except SystemExit as left:
        code = left.code
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1), error
    assert error.startswith("fedsel: ")
    assert MISTAKES[command].format(here=tmp_path) in error
