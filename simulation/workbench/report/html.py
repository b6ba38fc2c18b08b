"""Self-contained HTML page of a report.

The templates are in a Python module because Flower does not bundle HTML files into an app.
"""
# ruff: noqa: E501

from typing import Any

from jinja2 import DictLoader, Environment

BASE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{{ title }}</title>
<style>
:root { --text: #1b1b1b; --soft: #555; --paper: #fdfdfc; --line: #d5d5d0; --stripe: #f3f3ef; --mark: #0072B2; --warn: #fff3dc; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--paper); color: var(--text);
  font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.3rem; margin-top: 2.5rem; } h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
.soft, figcaption, caption { color: var(--soft); font-size: .88rem; }
.verdict { border-left: 4px solid var(--mark); padding: .2rem 1rem .2rem 2rem; background: var(--stripe); }
.verdict li { margin: .45rem 0; }
.note { background: var(--warn); padding: .5rem 1rem; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; font-weight: 600; hyphens: auto; }
.text, th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
th, th.text { overflow-wrap: break-word; } td.name { white-space: nowrap; }
th:first-child, td:first-child { min-width: 6.5rem; }
tbody tr:nth-child(even) td { background: var(--stripe); }
figure { margin: 0; } img { display: block; width: 100%; height: auto; background: #fff; border-radius: 4px; }
figcaption { margin-top: .4rem; }
h1, li, p, figcaption { overflow-wrap: break-word; }
@media (max-width: 46rem) {
  body { padding: 1rem; } h1 { font-size: 1.35rem; }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { border: 1px solid var(--line); border-radius: 4px; margin: .6rem 0; }
  td, td.text { display: flex; justify-content: space-between; gap: 1rem; text-align: right; }
  td::before { content: attr(data-name); color: var(--soft); text-align: left; max-width: 55%; flex-shrink: 0; }
  td:first-child { font-weight: 600; } td.name { white-space: normal; }
}
{% block style %}{% endblock %}
</style>
</head>
<body>
{% block body %}{% endblock %}
</body>
</html>
"""

PARTS = """{% macro show(whole, most=50) %}
{% set table = whole.without_empty() %}
<section>
<h3>{{ table.title }}</h3>
<table role="table" aria-label="{{ table.title }}">
<thead role="rowgroup"><tr role="row">{% for column in table.columns %}<th role="columnheader" scope="col"{% if table.rows and table.rows[0][loop.index0] is string %} class="text"{% endif %}>{{ column.name }}</th>{% endfor %}</tr></thead>
<tbody role="rowgroup">
{% for row in table.texts()[:most] %}
{% set values = table.rows[loop.index0] %}
<tr role="row">{% for cell in row %}<td role="cell" data-name="{{ table.columns[loop.index0].name }}"{% if values[loop.index0] is string %} class="text{% if cell|length <= 24 %} name{% endif %}">{{ cell }}{% else %}>{{ cell|replace(", ", ",\u00a0") }}{% endif %}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
<p class="soft">{{ table.caption }}{% if table.rows|length > most %} The first {{ most }} of {{ table.rows|length }} rows; all are in report-{{ table.name }}.csv.{% endif %}</p>
</section>
{% endmacro %}
{% macro draw(plot) %}
<figure class="{{ plot.name }}">
<h3>{{ plot.title }}</h3>
<img alt="{{ plot.caption }}" src="data:image/png;base64,{{ png(plot) }}">
<figcaption>{{ plot.caption }}</figcaption>
</figure>
{% endmacro %}
{% macro said(sentences) %}
<ul class="verdict">
{% for sentence in sentences %}
<li>{% if ": " in sentence %}<strong>{{ sentence.partition(": ")[0] }}:</strong> {{ sentence.partition(": ")[2] }}{% else %}<strong>{{ sentence }}</strong>{% endif %}</li>
{% endfor %}
</ul>
{% endmacro %}
"""
"""Macros: a table, a figure and a list of sentences."""

REPORT = """{% extends "base" %}
{% from "parts" import show, draw, said with context %}
{% block body %}
<h1>{{ title }}</h1>
{{ said(answers) }}
{% if sections|length == 1 %}{{ draw(sections[0].plot) }}{% endif %}
<p class="soft">{{ settings }}</p>
{% for note in notes %}
<p class="note">{{ note }}</p>
{% endfor %}
{% for section in sections %}
{% if section.name %}<h2>{{ section.title }}</h2>{% endif %}
{{ show(section.ranking) }}
{% if tuned and loop.first %}{{ said(tuned) }}{{ show(common[0]) }}{% endif %}
{{ said(section.verdict) }}
{% if sections|length > 1 %}{{ draw(section.plot) }}{% endif %}
{% for table in section.tables %}
{{ show(table) }}
{% endfor %}
{% endfor %}
{% if sections|length > 1 %}<h2>All runs</h2>{% endif %}
{% for table in common[1 if tuned else 0:] %}
{{ show(table) }}
{% endfor %}
<p class="soft">The folder of this page also has these tables as report-*.csv and report-*.tex, and all rounds as rounds.csv.</p>
{% endblock %}
"""

LIVE = """{% extends "base" %}
{% from "parts" import show with context %}
{% block style %}
.curves { position: relative; margin: .5rem 0 0 3.2rem; }
.curves svg { display: block; width: 100%; height: 18rem; background: #fff; border-radius: 4px; }
.curves span { position: absolute; left: -3.2rem; width: 2.9rem; text-align: right; transform: translateY(-50%); font-size: .78rem; }
.axis { display: flex; justify-content: space-between; margin-left: 3.2rem; }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .4rem 0 0 3.2rem; }
.keys svg { width: 1.6rem; height: .6rem; margin-right: .4rem; background: #fff; }
{% endblock %}
{% block body %}
<main{% if ended %} data-ended="yes"{% endif %}>
<h1>{{ title }}</h1>
<p id="state"><strong>{{ left }}</strong></p>
{% for note in notes %}
<p class="note">{{ note }}</p>
{% endfor %}
{% for picture in pictures %}
<section>
<h3>{{ picture.title }}</h3>
<div class="curves">
<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{{ picture.title }}">
{% for _, top in picture.ticks %}
<line x1="0" x2="100" y1="{{ top }}" y2="{{ top }}" stroke="#ddd" vector-effect="non-scaling-stroke"/>
{% endfor %}
{% for points, look in picture.curves %}
<polyline points="{{ points }}" fill="none" stroke="{{ look.color }}" stroke-dasharray="{{ dashes[look.linestyle] }}" stroke-width="2" stroke-linecap="round" vector-effect="non-scaling-stroke"/>
{% endfor %}
</svg>
{% for value, top in picture.ticks %}
<span class="soft" style="top: {{ top }}%">{{ value }}</span>
{% endfor %}
</div>
<div class="axis soft"><span>0</span><span>round</span><span>{{ picture.rounds }}</span></div>
<ul class="keys">
{% for name, value, runs, look in picture.legend %}
<li><svg viewBox="0 0 26 10" aria-hidden="true"><line x1="0" x2="26" y1="5" y2="5" stroke="{{ look.color }}" stroke-width="3" stroke-dasharray="{{ dashes[look.linestyle] }}"/></svg>{{ name }} <strong>{{ value }}</strong> {{ runs }}</li>
{% endfor %}
</ul>
</section>
{% endfor %}
{% for table in tables %}
{{ show(table, table.rows|length) }}
{% endfor %}
</main>
<script nonce="{{ nonce }}">
const refresh = async () => {
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) throw answer.status;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = page.title;
    document.querySelector("main").replaceWith(page.querySelector("main"));
  } catch {
    document.querySelector("#state").textContent = "fedsel watch has ended, so this page no longer changes.";
    return;
  }
  if (!document.querySelector("main").dataset.ended) setTimeout(refresh, {{ refresh_ms }});
};
if (!document.querySelector("main").dataset.ended) setTimeout(refresh, {{ refresh_ms }});
</script>
{% endblock %}
"""
"""Page of `fedsel watch --html`. Its script replaces its main part, and stops after the last run or the server's end."""

ENVIRONMENT = Environment(
    loader=DictLoader({"base": BASE, "parts": PARTS, "report": REPORT, "live": LIVE}),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html(page: str, **values: Any) -> str:
    """Text of the page `report` or `live`, filled with `values`."""
    return ENVIRONMENT.get_template(page).render(**values)
