"""Pages and verdicts cannot disagree: docs/results.md quotes claims and rankings."""

import re

from laboratory.claims.verdict import DECIDED, DOES_NOT, HOLDS, NOT_RUN, UNDECIDED
from laboratory.tests.claims.fakes import claims, verdicts
from tests.support.documentation import PAGES

RESULTS = PAGES["docs/results.md"]
WORDS = re.compile(rf"\b(?:do not hold|hold|{'|'.join((*DECIDED[::-1], UNDECIDED, NOT_RUN))})")


def test_the_first_table_has_a_claim_in_the_column_of_its_verdict():
    rows = [row.split("|") for row in RESULTS.partition("\n## ")[0].splitlines() if row.startswith("| [")]
    named = {HOLDS: 2, DOES_NOT: 3}
    for word, column in named.items():
        found = {name for row in rows for name in re.findall(r"`([a-z0-9-]+-[a-z0-9-]+)`", row[column])}
        assert found
        assert {verdicts()[name].word for name in found} == {word}


def test_the_number_of_claims_about_isp_with_each_partition_is_that_of_their_settings():
    """The page said that all but one had the same partition."""
    ran = [c for c in claims() if c.paper == "ISP" and not c.superseded and verdicts()[c.name].word != NOT_RUN]
    shared = sum(c.configuration(c.claimed, 1).partition.partition == "dirichlet" for c in ran)
    text = " ".join(RESULTS.split())
    assert f"{shared} of the {len(ran)} claims about ISP with runs in the [ledger](ledger.md), share each class" in text
    assert f"The presets and the other {len(ran) - shared} claims draw a class mix for each client" in text


def test_no_paragraph_gives_a_claim_another_verdict():
    """Words of verdicts in a paragraph are the verdicts of the claims that it names, none of which is superseded."""
    standing = {claim.name: verdicts()[claim.name].word for claim in claims() if not claim.superseded}
    for page, text in PAGES.items():
        for paragraph in re.split(r"\n\n|\n(?=- |\| )", text) if page != "docs/ledger.md" else ():
            named = {claim.name for claim in claims() if f"`{claim.name}`" in paragraph}
            assert named <= set(standing), (page, paragraph)
            words = set(WORDS.findall(" ".join(paragraph.split()))) if named else set()
            words = {word.replace("do not hold", "does not hold").replace("holds", "hold") for word in words}
            assert words <= {standing[name].replace("holds", "hold") for name in named}, (page, paragraph)


def buffered_rows():
    """Mean seconds of the buffered server and of both synchronous ones, and the advantages in percent."""
    rows = []
    for method in ("random", "oort", "power-of-choice", "hetero-select", "fed-cbs"):
        some, whole = (
            verdicts()[f"fedbuff-{method}-{other}"].verdicts[0] for other in ("over-selection", "synchronous")
        )
        seconds = [some.pairs.claimed.mean(), some.pairs.other.mean(), whole.pairs.other.mean()]
        shares = [
            f"{100 * found.mean:.0f}% [{100 * found.low:.0f}, {100 * found.high:.0f}]"
            for found in (some.advantage, whole.advantage)
        ]
        rows.append(f"| {' | '.join([f'`{method}`', *(f'{value:.1f}' for value in seconds), *shares])} |")
    return rows


def test_the_table_of_buffered_servers_is_that_of_the_claims():
    assert "\n".join(buffered_rows()) in PAGES["docs/clock.md"]
