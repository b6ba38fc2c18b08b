"""Template of the ledger's page: HTML with Jinja's marks."""
# ruff: noqa: E501

TEMPLATE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Ledger of claims</title>
<style>
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; color: #1b1b1b; background: #fdfdfc;
  font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
.soft { color: #555; font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #d5d5d0; }
img { width: 100%; height: auto; }
li { margin: .4rem 0; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>Ledger of claims</h1>
<ul>
{% for heading, text in opening %}
<li><strong>{{ heading }}:</strong> {{ text }}</li>
{% endfor %}
</ul>
<p class="soft"><code>{{ command }}</code></p>
<div class="scroll"><img alt="advantages of the claims with their intervals" src="data:image/svg+xml;base64,{{ drawing }}"></div>
<p class="soft">{{ caption }}</p>
{% for table in tables %}
<h2>{{ table.title }}</h2>
<div class="scroll" tabindex="0" role="region" aria-label="{{ table.title }}">
<table>
<thead><tr>{% for column in table.columns %}<th scope="col">{{ column.name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.texts() %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
<p class="soft">{{ table.caption }}</p>
{% endfor %}
<h2>Rules</h2>
<ul>
{% for name, text in notes %}
<li><strong>{{ name }}</strong>: {{ text }}</li>
{% endfor %}
</ul>
</body>
</html>
"""
