"""Template of the report page: Jinja in a module, as Flower bundles no files of HTML into an app."""
# ruff: noqa: E501

TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{{ title }}</title>
<style>
:root { --text: #1b1b1b; --soft: #555; --paper: #fdfdfc; --line: #d5d5d0; --stripe: #f3f3ef; --mark: #0072B2; --warn: #fff3dc; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e4; --soft: #b0b0aa; --paper: #17181a; --line: #3c3d40; --stripe: #202225; --mark: #56B4E9; --warn: #3a2f16; }
}
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--paper); color: var(--text);
  font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.3rem; margin-top: 2.5rem; } h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
.soft, figcaption, caption { color: var(--soft); font-size: .88rem; }
.verdict { border-left: 4px solid var(--mark); padding: .2rem 1rem .2rem 2rem; background: var(--stripe); }
.verdict li { margin: .45rem 0; }
.note { background: var(--warn); padding: .5rem 1rem; margin: .5rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; padding-top: .4rem; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; } th { vertical-align: bottom; font-weight: 600; }
.text { text-align: left; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
tbody tr:nth-child(even) td { background: var(--stripe); }
figure { margin: 0; } img { display: block; width: 100%; min-width: 44rem; height: auto; background: #fff; border-radius: 4px; }
figcaption { margin-top: .4rem; }
</style>
</head>
<body>
{% macro show(table) %}
<section>
<h3>{{ table.title }}</h3>
<div class="scroll" tabindex="0" role="region" aria-label="{{ table.title }}">
<table>
<thead><tr>{% for column in table.columns %}<th scope="col"{% if table.rows[0][loop.index0] is string %} class="text"{% endif %}>{{ column.name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.texts()[:rows_shown] %}
{% set values = table.rows[loop.index0] %}
<tr>{% for cell in row %}<td{% if values[loop.index0] is string %} class="text"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
<p class="soft">{{ table.caption }}{% if table.rows|length > rows_shown %} The first {{ rows_shown }} of {{ table.rows|length }} rows; all are in report-{{ table.name }}.csv.{% endif %}</p>
</section>
{% endmacro %}
<h1>{{ title }}</h1>
<p class="soft">{{ settings }}</p>
{% for note in notes %}
<p class="note">{{ note }}</p>
{% endfor %}
{% for section in sections %}
{% if section.name %}<h2>{{ section.name }}</h2>{% endif %}
<ul class="verdict">
{% for sentence in section.verdict %}
<li>{% if ": " in sentence %}<strong>{{ sentence.partition(": ")[0] }}:</strong> {{ sentence.partition(": ")[2] }}{% else %}<strong>{{ sentence }}</strong>{% endif %}</li>
{% endfor %}
</ul>
{% for plot in section.plots %}
<figure class="{{ plot.name }}">
<h3>{{ plot.title }}</h3>
<div class="scroll" tabindex="0" role="region" aria-label="{{ plot.title }}"><img alt="{{ plot.caption }}" src="data:image/png;base64,{{ png(plot) }}"></div>
<figcaption>{{ plot.caption }}</figcaption>
</figure>
{% endfor %}
{% for table in section.tables %}
{{ show(table) }}
{% endfor %}
{% for note in section.notes %}
<p class="note">{{ note }}</p>
{% endfor %}
{% endfor %}
{% if sections|length > 1 %}<h2>All runs</h2>{% endif %}
{% for table in common %}
{{ show(table) }}
{% endfor %}
<p class="soft">The same tables lie beside this page as report.md and report-*.csv.</p>
</body>
</html>
"""
