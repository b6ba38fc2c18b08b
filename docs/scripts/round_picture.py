"""Picture of a round: who sends what to whom. `python docs/scripts/round_picture.py` writes docs/round.svg.

The bytes are those of round 2 of the default run, `fedsel run`.
"""

from pathlib import Path

WIDTH, SERVER, CLIENT = 560, 96, 516
STEPS = (
    ("enrol", ("who are you?", "partition id, number of examples"), "once for each client"),
    ("probe", ("the model, 2,600 bytes", "its loss, 8 bytes"), "all 20 clients: 52,160 bytes"),
    ("select", (), "5 of the 20 clients, by score"),
    ("train", ("the model, 2,600 bytes", "a compressed update"), "5 clients: 13,000 bytes down, 4,100 up"),
    ("aggregate", (), "check, weigh, add up; then the server's step"),
    ("evaluate", (), "on the server's test set"),
    ("record", (), "one line in rounds.jsonl"),
)
STYLE = """<style>
text { font: 15px system-ui, sans-serif; fill: #1a1a2e }
.head { font-weight: 600; font-size: 17px }
.note { fill: #55556d }
.step { font-weight: 600 }
.line { stroke: #9a9ab0; stroke-width: 2; stroke-dasharray: 4 5 }
.arrow { stroke: #3949ab; stroke-width: 2; marker-end: url(#tip) }
.box { fill: #eef0fb; stroke: #3949ab; stroke-width: 1.5 }
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 10 5 0 10z" fill="#3949ab"/></marker></defs>"""


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "middle") -> str:
    """One line of text."""
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{said}</text>'


def arrow(y: float, start: float, end: float, said: str) -> list[str]:
    """An arrow, and its message above it."""
    line = f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" class="arrow"/>'
    return [line, text((SERVER + 66 + CLIENT) / 2, y - 6, said)]


def picture() -> str:
    """The picture as SVG."""
    parts = [text(SERVER, 36, "Server", "head"), text(CLIENT - 20, 36, "Clients", "head")]
    top = 56
    for name, messages, note in STEPS:
        tall = 92 if messages else 38
        parts.append(f'<rect x="{SERVER - 66}" y="{top}" width="132" height="{tall}" rx="8" class="box"/>')
        parts.append(text(SERVER, top + tall / 2 + 5, name, "step"))
        if messages:
            parts += arrow(top + 22, SERVER + 66, CLIENT - 3, messages[0])
            parts += arrow(top + 52, CLIENT, SERVER + 69, messages[1])
            parts.append(text((SERVER + 66 + CLIENT) / 2, top + 80, note, "note"))
        else:
            parts.append(text(SERVER + 82, top + 24, note, "note", "start"))
        top += tall + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 6}" role="img">',
            "<title>A round: what the server and the clients send to each other</title>",
            STYLE,
            f'<rect width="{WIDTH}" height="{top + 6}" rx="12" fill="#ffffff"/>',
            f'<line x1="{CLIENT}" y1="50" x2="{CLIENT}" y2="{top - 10}" class="line"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("round.svg").write_text(picture(), encoding="utf-8")
