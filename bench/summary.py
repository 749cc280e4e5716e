"""One screen and one picture of what scripts/bench_peers measured."""
from xml.sax.saxutils import escape

COLOURS = ["#1f6f8b", "#c8763a", "#8a5aa8", "#6b8f3a", "#a04a5a"]
WIDTH, LEFT, BAR, GAP, TOP = 900, 220, 18, 14, 84
SCALE = (WIDTH - LEFT - 170) / 100  # pixels for each hundredth of the limit


def cell(result, ours):
    """Milliseconds of a step, and how many times those of libnxd they are or, of libnxd, their share."""
    if result is None:
        return "-"
    if not isinstance(result, dict):
        return "failed"
    if result is ours:
        return f"{result['median']:.0f} ms  {result['share']:.0f} %"
    times = f"{result['median'] / ours['median']:.2f} x" if isinstance(ours, dict) else ""
    return f"{result['median']:.0f} ms  {times}" + (" LOSS DIFFERS" if result["differs"] else "")


def screen(all_results, names):
    """Text: a line for each dtype and layout, a column for each contender."""
    lines, table = [], [["", "", "limit", *names]]
    for dtype, (results, peak, left_out) in all_results.items():
        for layout in dict.fromkeys(name for name, _ in results):
            ours = results[layout, names[0]]
            limit = f"{ours['limit']:.0f} ms" if isinstance(ours, dict) else "-"
            table.append([dtype, layout, limit,
                          *(cell(results.get((layout, who)), ours) for who in names)])
        lines += [f"{dtype}, {layout}: {who} left out: {why}"
                  for (layout, who), why in left_out.items()]
        lines += [f"{dtype}, {layout}: {who}: {r}" for (layout, who), r in results.items()
                  if not isinstance(r, dict)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    rows = ["  ".join(text.ljust(w) for text, w in zip(row, widths)).rstrip() for row in table]
    return "\n".join(["", *rows, "", *lines,
                      "limit: the step's operations at the GEMM peak of all cores, measured between "
                      "the steps; %: share of it;",
                      "x: times as long as libnxd's step. All start from the same weights and reach "
                      "the same loss."])


def draw(path, title, all_results, names):
    """SVG: bars of shares of the limit, grouped by dtype and layout."""
    body, y = [], TOP
    for dtype, (results, *_) in all_results.items():
        for layout in dict.fromkeys(name for name, _ in results):
            body.append(f'<text x="12" y="{y + 13}" font-weight="bold">'
                        f"{escape(dtype)}, {escape(layout)}</text>")
            for index, who in enumerate(names):
                result = results.get((layout, who))
                if not isinstance(result, dict):
                    continue
                width = SCALE * min(result["share"], 110)
                colour = COLOURS[index % len(COLOURS)]
                body.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" '
                            f'fill="{colour}"/><text x="{LEFT + width + 6:.1f}" y="{y + 12}">'
                            f"{result['share']:.0f} %, {result['median']:.0f} ms</text>")
                y += BAR
            y += GAP
    limit = LEFT + 100 * SCALE
    legend = "".join(f'<rect x="{LEFT + 150 * i}" y="42" width="12" height="12" '
                     f'fill="{COLOURS[i % len(COLOURS)]}"/><text x="{LEFT + 150 * i + 18}" y="53">'
                     f"{escape(who)}</text>" for i, who in enumerate(names))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 30}" '
                   f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" '
                   f'fill="#ffffff"/>\n<text x="12" y="24">{escape(title)}</text>\n{legend}\n'
                   f'<path d="M{limit:.1f} {TOP - 10}V{y}" stroke="#444444" stroke-dasharray="4 3"/>'
                   f'<text x="{limit:.1f}" y="{TOP - 16}" text-anchor="middle">limit: GEMM peak'
                   "</text>\n" + "\n".join(body) +
                   f'\n<text x="12" y="{y + 18}">Share of the limit: the longer, the faster.</text>'
                   "\n</svg>\n")
