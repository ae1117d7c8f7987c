"""Rows of text in columns, numbers with fixed digits, names of heads."""


def columns(rows, header, left=(0,)):
    """Rows of strings as aligned columns; those numbered in `left` to the left, the others to the right."""
    widths = [max(len(str(row[n])) for row in [header, *rows]) for n in range(len(header))]

    def line(row):
        cells = [str(cell).ljust(w) if n in left else str(cell).rjust(w)
                 for n, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), *map(line, rows)])


def number(value, digits=3):
    """A number with fixed digits; a dash for what does not exist."""
    return "-" if value is None or value != value else f"{value:.{digits}f}"


def head_name(row):
    """A head as 5.1 (layer.head)."""
    return f"{int(row['layer'])}.{int(row['head'])}"


def signed(value, digits=3):
    """A number with fixed digits and its sign, none where it rounds to 0; a dash for what does not exist."""
    if value is None or value != value:
        return "-"
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"
