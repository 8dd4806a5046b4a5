"""Small SVG drawings: lines over time, heat maps, bars, and several of them on one sheet. Text in, text out."""

import html
import math

COLOURS = ("#1764ab", "#d9541e", "#2e8540", "#8e44ad", "#b8860b", "#555555", "#c2185b", "#00838f")
FONT = 'font-family="sans-serif" font-size="12"'
PANEL_WIDTH, PANEL_HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
CELL_WIDTH, CELL_HEIGHT = 62, 28
BAR_HEIGHT, BAR_ROOM = 20, 64  # room for the number behind a bar
GAP = 16
HEADROOM = 1.5  # lines that go higher than that above a goal are cut off, so that the goal can be seen


class Drawing:
    """A piece of SVG and its size."""

    def __init__(self, width, height, parts):
        self.width, self.height, self.parts = width, height, parts

    def svg(self):
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" height="{self.height:.0f}" '
                f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" {FONT}>\n'
                f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def text(x, y, words, anchor="start", **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(str(words))}</text>'


def ticks(least, most, count=6):
    """Round numbers that cover a range, about `count` of them."""
    span = most - least
    if span <= 0:
        return [least]
    step = 10 ** math.floor(math.log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count)
    first = math.ceil(least / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(most / step + 1e-9) + 1)]


def line_plot(title, x_label, y_label, series, marks=(), levels=()):
    """Series are (name, [(x, y), ...]); marks are (x, words), drawn upright; levels are (x1, x2, y), dashed: goals."""
    points = [point for _, line in series for point in line]
    x_most = max([x for x, _ in points] + [x for x, _ in marks], default=1) or 1
    x_least = min([x for x, _ in points], default=0)
    y_most = max([y for _, y in points] + [y for _, _, y in levels], default=1) * 1.08 or 1
    if levels:
        y_most = min(y_most, HEADROOM * max(y for _, _, y in levels))
    width, height = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM

    def at(x, y):
        share = (x - x_least) / ((x_most - x_least) or 1)
        return LEFT + share * width, TOP + height - min(y / y_most, 1) * height

    parts = [text(LEFT, 18, title, font_weight="bold")]
    for tick in ticks(0, y_most):
        _, y = at(x_least, tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + width}" y2="{y:.1f}" stroke="#e0e0e0"/>')
        parts.append(text(LEFT - 6, y + 4, f"{tick:g}", "end"))
    for tick in ticks(x_least, x_most, 10):
        x, y = at(tick, 0)
        parts.append(text(x, y + 16, f"{tick:g}", "middle"))
    parts.append(text(LEFT + width / 2, PANEL_HEIGHT - 8, x_label, "middle"))
    parts.append(text(14, TOP + height / 2, y_label, "middle", transform=f"rotate(-90 14 {TOP + height / 2:.1f})"))
    for x1, x2, y in levels:
        (left, top), (right, _) = at(max(x1, x_least), y), at(min(x2, x_most), y)
        parts.append(f'<line x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{top:.1f}" stroke="black" '
                     'stroke-dasharray="6 4"/>')
    for when, words in marks:
        x, _ = at(when, 0)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + height}" stroke="#999999"/>')
        parts.append(text(x + 4, TOP + 12, words, fill="#666666"))
    for number, (name, line) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in thinned(line, width))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(text(LEFT + width, 18, name, "end", fill=colour, dx=f"{-110 * (len(series) - 1 - number)}"))
    return Drawing(PANEL_WIDTH, PANEL_HEIGHT, parts)


def thinned(line, most):
    """No more points than can be seen: the mean of neighbours."""
    group = max(1, math.ceil(len(line) / most))
    pieces = [line[i:i + group] for i in range(0, len(line), group)]
    return [(sum(x for x, _ in piece) / len(piece), sum(y for _, y in piece) / len(piece)) for piece in pieces]


def shade(share):
    """From red (0) through yellow to green (1); grey when it is not known."""
    if share is None:
        return "#eeeeee"
    share = min(max(share, 0), 1)
    red, yellow, green = (214, 72, 60), (246, 214, 96), (78, 160, 88)
    low, high, part = (red, yellow, share * 2) if share < 0.5 else (yellow, green, share * 2 - 1)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high))


def heat_map(title, columns, rows, values, note=""):
    """values[(row, column)] is a share between 0 and 1, or (share, words); what is missing stays grey."""
    left = 12 + 7 * max(len(str(row)) for row in rows)
    parts = [text(4, 16, title, font_weight="bold")]
    for number, column in enumerate(columns):
        parts.append(text(left + (number + 0.5) * CELL_WIDTH, 36, column, "middle"))
    for y_number, row in enumerate(rows):
        y = 42 + y_number * CELL_HEIGHT
        parts.append(text(left - 6, y + CELL_HEIGHT * 0.65, row, "end"))
        for x_number, column in enumerate(columns):
            value = values.get((row, column))
            share, words = value if isinstance(value, tuple) else (value, "" if value is None else percent(value))
            x = left + x_number * CELL_WIDTH
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" '
                         f'fill="{shade(share)}"/>')
            parts.append(text(x + CELL_WIDTH / 2 - 1, y + CELL_HEIGHT * 0.65, words, "middle"))
    height = 42 + len(rows) * CELL_HEIGHT + 4
    if note:
        parts.append(text(4, height + 12, note, fill="#666666", font_size="11"))
        height += 20
    return Drawing(max(left + len(columns) * CELL_WIDTH, 7 * len(title) + 8, 6 * len(note)), height, parts)


def bars(title, unit, rows, parts=("",)):
    """rows are (name, [value of each part]): bars one below the other, their parts one behind the other; the number
    behind a bar is their sum."""
    left = 12 + 7 * max((len(name) for name, _ in rows), default=0)
    width = PANEL_WIDTH - left - BAR_ROOM
    most = max((sum(values) for _, values in rows), default=0) or 1
    drawn = [text(4, 16, f"{title}, {unit}", font_weight="bold")]
    for number, name in enumerate(parts):
        drawn.append(text(PANEL_WIDTH - 4, 16, name, "end", fill=COLOURS[number], dx=f"{-80 * (len(parts) - 1 - number)}"))
    for number, (name, values) in enumerate(rows):
        x, y = left, 26 + number * BAR_HEIGHT
        drawn.append(text(left - 6, y + 13, name, "end"))
        for value, colour in zip(values, COLOURS):
            length = value / most * width
            drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{BAR_HEIGHT - 4}" fill="{colour}"/>')
            x += length
        drawn.append(text(x + 4, y + 13, f"{sum(values):.3g}"))
    return Drawing(PANEL_WIDTH, 26 + len(rows) * BAR_HEIGHT + 4, drawn)


def percent(share):
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.1f} %"


def sheet(drawings, columns=1):
    """Several drawings on one, row by row."""
    parts, y, width = [], 0, 0
    for first in range(0, len(drawings), columns):
        row = drawings[first:first + columns]
        x = 0
        for drawing in row:
            parts.append(f'<g transform="translate({x:.0f} {y:.0f})">\n' + "\n".join(drawing.parts) + "\n</g>")
            x += drawing.width + GAP
        width = max(width, x - GAP)
        y += max(drawing.height for drawing in row) + GAP
    return Drawing(width, y, parts)
