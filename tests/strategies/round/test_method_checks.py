"""Checks of a user's method: one sentence on its class, and one on each unsound selection."""

import re
import sys
from dataclasses import dataclass
from types import ModuleType, new_class

import numpy as np
import pytest

from fedsel_app.config import ConfigError, Settings, setting
from simulation.workbench.cli import main
from strategies import find_strategy
from strategies.base import SelectionStrategy
from strategies.methods.oort import Oort
from strategies.roster import RoundInfo, Selection
from strategies.round.method_checks import build, candidates_fault, select, selection_fault, size_fault
from strategies.testing import CHECKS, ContractError, check_method, check_results
from strategies.testing.fakes import make_context

AVAILABLE = np.array([0, 2, 3, 7])
MUST = "`select` must return Selection(clients), with clients an ascending array of distinct ids of available clients."


class Sound(SelectionStrategy):
    name, paper = "sound", "nowhere"

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:count])


class Undecorated(Settings):
    share: float = setting(0.5, "share")


@dataclass(frozen=True)
class Meaningless(Settings):
    share: float = 0.5


@dataclass(frozen=True)
class ShareConfig(Settings):
    """Settings."""

    share: float = setting(0.5, "share")


class MyOort(Oort):
    """Keeps the name."""


def changed(base=Sound, **attributes):
    """A class with these attributes in place of those of `base`."""
    return new_class("Changed", (base,), exec_body=lambda names: names.update(attributes))


METHOD = SelectionStrategy
SELECTING = {"name": "mine", "paper": "nowhere", "select": Sound.select}
REFUSED = [
    (changed(METHOD, **SELECTING | {"name": None}), 'it needs a name, a string in the class: name = "mine".'),
    (changed(METHOD, **SELECTING | {"paper": None}), 'it needs a paper, a string in the class: paper = "our paper".'),
    (
        changed(METHOD, name="mine", paper="nowhere"),
        "it has no `select`. Write `def select(self, roster, round_info, count, rng)`.",
    ),
    (changed(name="oort"), "its name 'oort' is the name of a method of fedsel. Give it another."),
    (
        changed(needs=classmethod(lambda cls, config: {"losses"})),
        "its `needs` must return a Needs(...). Got a set, {'losses'}.",
    ),
    (
        changed(METHOD[Undecorated], **SELECTING),
        "its settings Undecorated must be a dataclass: put @dataclass(frozen=True) above them.",
    ),
    (
        changed(METHOD[Meaningless], **SELECTING),
        "its settings need a meaning: write share = setting(default, 'what it is').",
    ),
]
"""Classes that no run takes, and why."""


@pytest.fixture
def module(monkeypatch):
    """A module of a user, which is empty."""
    made = ModuleType("users_methods")
    monkeypatch.setitem(sys.modules, "users_methods", made)
    return made


@pytest.mark.parametrize(("method", "said"), REFUSED)
def test_a_class_that_cannot_be_run_is_refused_in_one_sentence(method, said, module):
    module.Changed = method
    for refuse in (find_strategy, lambda path: check_method(method)):
        with pytest.raises(ConfigError) as raised:
            refuse("users_methods:Changed")
        assert str(raised.value) == f"The method {method.__module__}:Changed cannot be run: {said}"


def test_an_object_that_is_no_method_is_refused():
    with pytest.raises(ConfigError, match=r"Give a subclass of SelectionStrategy, .* Got 'oort'"):
        check_method("oort")


def keyed(self, context):
    super(Sound, self).__init__(context)
    self.counts = {0: 1}


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (changed(__init__=lambda self, context: None), "its `__init__` must call super().__init__(context) first."),
        (
            changed(state_fields=("counts",)),
            "its `__init__` must set self.counts, because its state_fields contain 'counts'.",
        ),
        (
            changed(state_fields=("counts",), __init__=keyed),
            "self.counts, which is in its state_fields, must be a number or an array. Got a dict, {0: 1}.",
        ),
    ],
)
def test_what_a_constructor_leaves_out_is_said_once(method, said):
    sentence = f"The method {method.__module__}:Changed cannot be run: {said}"
    with pytest.raises(ConfigError) as raised:
        build(method, make_context(Settings(), clients=4))
    assert str(raised.value) == sentence
    [result] = check_results(method)
    assert str(result.failure).endswith(f"'selection': {sentence}")


@pytest.mark.parametrize("method", [Sound, changed(METHOD[ShareConfig], **SELECTING), MyOort])
def test_a_sound_class_is_loaded(method, module):
    module.Mine = method
    assert find_strategy("users_methods:Mine") is method


def selection(**parts):
    return Selection(**{"clients": np.array([0, 2]), **parts})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([0, 2], "It returned a list, [0, 2]."),
        (selection(clients=np.array([0.0, 2.0])), "Here clients is an array of float64, array([0., 2.])."),
        (selection(clients=np.array([[0, 2]])), "Here clients is an array of int64, array([[0, 2]])."),
        (selection(clients=np.array([2, 0])), "Here clients is [2, 0]."),
        (selection(clients=np.array([-1, 2])), "Here clients has [-1]; the available ids are [0, 2, 3, 7]."),
        (
            selection(scores=np.ones(3)),
            "Its 'scores' must be an array with one number for each selected client. "
            "Got an array of float64, array([1., 1., 1.]).",
        ),
        (
            selection(scores=np.array(["a", "b"])),
            "Its 'scores' must be an array with one number for each selected client. "
            "Got an array of <U1, array(['a', 'b'], dtype='<U1').",
        ),
        (selection(weights=np.array([1.0, np.nan])), "Its 'weights' must be finite and at least 0. Got [1.0, nan]."),
        (selection(kept_fractions=np.array([0.5, 0.0])), "Its 'kept_fractions' must be above 0. Got [0.5, 0.0]."),
        (selection(kept_fractions=np.array([0.5, 2.0])), "Its 'kept_fractions' must be at most 1. Got [0.5, 2.0]."),
        (
            selection(local_steps=np.array([1, 0])),
            "Its 'local_steps' must be whole numbers above 0. Got an array of int64, array([1, 0]).",
        ),
        (
            selection(local_epochs=np.array([1.0, 2.0])),
            "Its 'local_epochs' must be whole numbers above 0. Got an array of float64, array([1., 2.]).",
        ),
        (selection(components=[1.0]), "Its 'components' must be a dict of arrays by name. Got a list, [1.0]."),
    ],
)
def test_an_unsound_selection_is_described_by_what_came(found, said):
    assert selection_fault(found, AVAILABLE) == said


def test_sound_selections_and_candidates_have_no_fault():
    whole = selection(
        weights=np.array([0.0, 1.0]),
        kept_fractions=np.ones(2),
        learning_rates=np.array([0.0, 0.1]),  # 0 in the last round of lr-decay = 1
        components={"a": np.full(2, np.nan)},
    )
    assert selection_fault(whole, AVAILABLE) == ""
    assert candidates_fault(AVAILABLE, AVAILABLE) == ""
    assert "Here it is [3, 2]." in candidates_fault(np.array([3, 2]), AVAILABLE)


@pytest.mark.parametrize(
    ("size", "exact", "said"),
    [
        (2, True, ""),
        (1, False, ""),
        (3, False, ""),
        (0, False, "It selected 0 clients instead of 2: select 2 clients."),
        (
            1,
            True,
            "It selected 1 clients instead of 2: select 2 clients, or set exact_cohort = False in the class.",
        ),
    ],
)
def test_the_size_of_a_cohort_is_as_promised(size, exact, said):
    assert size_fault(Selection(np.arange(size)), 2, exact=exact) == said


def test_a_method_that_raises_is_named_with_its_line():
    class Broken(Sound):
        def select(self, roster, round_info, count, rng):
            return roster.absent

    method = Broken(make_context(Settings(), clients=4))
    line = Broken.select.__code__.co_firstlineno + 1
    with pytest.raises(ConfigError) as raised:
        select(method, method.roster, RoundInfo(1, 2), 2, np.random.default_rng(0))
    assert str(raised.value) == (
        "`select` of the method sound raised AttributeError: 'Roster' object has no attribute 'absent' "
        f"({__file__}, line {line})."
    )


def test_a_check_says_one_cause_once():
    wrong = changed(select=lambda self, roster, round_info, count, rng: Selection(roster.ids))
    [failure] = [result for result in check_results(wrong) if result.failure is not None]
    assert failure.check == "selection"
    assert "It selected 8 clients instead of 4: select 4 clients, or" in str(failure.failure)


def test_a_check_names_a_client_whose_id_decides():
    said = "the selection depends on the ids: with id 0 a client was selected in 25 of 25 draws, with id [3-9] in 0."
    with pytest.raises(ContractError, match=f"{said}$"):
        CHECKS["relabelling"](Sound)


def test_a_run_with_a_wrong_method_ends_in_a_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wrong_method.py").write_text(
        "import numpy as np\n"
        "from strategies import Selection, SelectionStrategy\n\n\n"
        "class Same(SelectionStrategy):\n"
        '    name, paper = "same", "mine"\n\n'
        "    def select(self, roster, round_info, count, rng):\n"
        "        return Selection(np.zeros(count, np.int64))\n"
    )
    out = tmp_path / "run"
    assert main(["run", "--strategy", "wrong_method:Same", "--rounds", "2", "--cohort", "5", "--out", str(out)]) == 2
    said = f"fedsel: The method same cannot continue in round 1: {MUST} Here clients is [0, 0, 0, 0, 0].\n"
    assert capsys.readouterr().err == said
    assert (out / "rounds.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("field", "need", "read"),
    [
        ("roster.losses", "loss_probe", lambda self, roster: roster.losses),
        ("roster.label_counts", "label_counts", lambda self, roster: roster.label_counts),
        ("roster.step_s", "links", lambda self, roster: roster.step_s),
        ("last_updates", "updates", lambda self, roster: self.last_updates),
    ],
)
def test_a_method_that_reads_what_it_does_not_declare_is_told_the_line_to_write(field, need, read):
    """It sorted by numbers that were not measured, without a word, in a run."""
    reads = changed(select=lambda self, roster, round_info, count, rng: read(self, roster))
    method = reads(make_context(Settings(), clients=4))
    said = f"The method reads '{field}', which it does not declare: write `return Needs({need}=True)` in the"
    with pytest.raises(ConfigError, match=re.escape(said)):
        select(method, method.whole_roster, RoundInfo(1, 2), 2, np.random.default_rng(0))
    assert said in str(next(check_results(reads)).failure)
