"""How results look in a notebook: what they are, then their tables, each under its name. Everything is escaped."""

import html
from dataclasses import fields

ROWS = 20           # of a table at most, from its beginning and its end


def shown(what, tables, hint=""):
    """HTML, without scripts. what: what the result is; tables: {name: DataFrame}; hint: what to do next."""
    parts = [f"<p><b>{html.escape(what)}</b></p>"]
    for name, table in tables.items():
        parts += [f"<p>{html.escape(name)}, {len(table):,} row{'' if len(table) == 1 else 's'}</p>",
                  table.to_html(max_rows=ROWS, index=False, na_rep="–", border=0)]
    return f"<div>{''.join(parts)}{f'<p>{html.escape(hint)}</p>' if hint else ''}</div>"


class Shown:
    """A dataclass that a notebook shows as its DataFrames. A mixin: it adds nothing else."""

    def _repr_html_(self):
        values = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return shown(repr(self), {name: value for name, value in values.items() if hasattr(value, "to_html")})
