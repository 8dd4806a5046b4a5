"""Tables as text for terminals and as Markdown."""

NUMBER_WIDTH_MAX = 28  # longer cells are words that begin with a number


def text_table(header, rows):
    """Columns as wide as they need to be; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [all(_numeric(row[i]) for row in cells[1:]) for i in range(len(header))]

    def line(row):
        parts = [cell.rjust(width) if to_right else cell.ljust(width)
                 for cell, width, to_right in zip(row, widths, right)]
        return "  ".join(parts).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * width for width in widths), *map(line, cells[1:])])


def markdown_table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in lines)


def _numeric(cell):
    return not cell or (cell[0] in "0123456789-<>" and len(cell) <= NUMBER_WIDTH_MAX)


def number(value):
    """Three digits that matter, without an exponent."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    magnitude = abs(value)
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2 if magnitude >= 1 else 3
    return f"{value:.{decimals}f}"
