"""Renders every template of the table with Python's Jinja2, set up as transformers sets it for chat templates.

    python3 jinja_cases.py            # the rows that are not what Jinja2 makes of them; exit code 1 when there are any
    python3 jinja_cases.py --write    # renews the outcomes of all rows

The table is tests/golden/jinja_cases.jsonl: first {"context": the variables}, then {"source"} with its "text" or its
"error", which is "syntax" (the template is refused) or "runtime" (rendering fails). Made with a late Jinja2 3.1; 3.1.2
with MarkupSafe 2 makes three rows otherwise: `words.pop`, `'inf'|int`, and replace() on escaped text.
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

TABLE = pathlib.Path(__file__).resolve().parents[2] / "golden" / "jinja_cases.jsonl"
NOW = datetime.datetime(2025, 2, 3, 16, 5, 6)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's text for training; as a prompt it is its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def outcome(environment, source, context):
    try:
        template = environment.from_string(source)
    except (jinja2.TemplateSyntaxError, SyntaxError):
        return {"error": "syntax"}
    try:
        return {"text": template.render(**json.loads(json.dumps(context)))}
    except Exception:
        return {"error": "runtime"}


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    with TABLE.open(encoding="utf-8") as lines:
        first, *rows = map(json.loads, lines)
    renewed = [{"source": row["source"], **outcome(environment, row["source"], first["context"])} for row in rows]
    if sys.argv[1:] == ["--write"]:
        lines = [json.dumps(row, ensure_ascii=False) for row in [first, *renewed]]
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return 0
    different = [(row, new) for row, new in zip(rows, renewed) if row != new]
    for row, new in different:
        print(json.dumps(row, ensure_ascii=False), "\n    Jinja2:", json.dumps(new, ensure_ascii=False))
    print(f"{len(rows)} rows, {len(different)} not as Jinja2 {jinja2.__version__}")
    return 1 if different else 0


sys.exit(main())
