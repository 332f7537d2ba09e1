"""Drawing tools of a timeline: the scale and its axis, colours for light and dark, shapes, and texts that fit.

Every text from outside goes through `escaped`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html import escape

from ledger.util.times import shown

WIDTH, LEFT, RIGHT = 1200, 128, 36
CHAR = 6.1  # the width of a letter of 11 px, about
GAP = 10.0
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STEPS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
    10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
)  # fmt: skip

#: Class of a bar -> (fill in light mode, in dark mode, text in the legend).
OUTCOMES = {
    "open": ("#3f7fc4", "#539bf5", "runs, or no end is known"),
    "finished": ("#2c9a57", "#46b96f", "finished"),
    "failed": ("#d9534a", "#e5675e", "failed"),
    "failed-permanent": ("#9f1f2d", "#c2414d", "failed for good"),
    "lost": ("#8957c7", "#a67be0", "lost"),
    "stopped": ("#8b96a3", "#7d8794", "stopped"),
    "canceled": ("#b7832f", "#c9973f", "canceled"),
    "abandoned": ("#6b4a3a", "#a58472", "abandoned"),
}
_STYLE = """
text{font:11px ui-sans-serif,system-ui,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif;fill:INK}
.title{font-size:17px;font-weight:600}.soft{fill:SOFT}.small{font-size:10px}.end{text-anchor:end}.mid{text-anchor:middle}
.paper{fill:PAPER}.grid{stroke:GRID;stroke-width:1}.rule{stroke:RULE;stroke-width:1}.stripe{fill:STRIPE}
.act{stroke:ACT;stroke-width:1;stroke-dasharray:3 3;opacity:.55}.flag{fill:ACT}.ours{fill:SOFT}
.reign{fill:REIGN;stroke:PAPER;stroke-width:1}.back{fill:none;stroke:SOFT;stroke-width:1;opacity:.75}
.wait{fill:none;stroke:SOFT;stroke-width:1;stroke-dasharray:4 3}.stall{fill:ACT;opacity:.85}
.over{paint-order:stroke;stroke:PAPER;stroke-width:3px;stroke-linejoin:round}
.tick{stroke:PAPER;stroke-width:1.4;opacity:.9}.save{fill:PAPER;stroke:INK;stroke-width:1.2}.starting{opacity:.4}
"""
LIGHT = {"INK": "#1f2328", "SOFT": "#656d76", "PAPER": "#ffffff", "GRID": "#e7eaee", "RULE": "#c6ccd3",
          "STRIPE": "#f6f8fa", "ACT": "#bf5b04", "REIGN": "#d5deea"}  # fmt: skip
DARK = {"INK": "#e6edf3", "SOFT": "#9198a1", "PAPER": "#0d1117", "GRID": "#21262d", "RULE": "#3d444d",
         "STRIPE": "#131922", "ACT": "#f0883e", "REIGN": "#263447"}  # fmt: skip


# -- the scale ---------------------------------------------------------------------------------------------------------


class Scale:
    """Converts seconds to pixels. A single moment is a second wide."""

    def __init__(self, begin_s: float, end_s: float) -> None:
        self.span_s = max(end_s - begin_s, 1.0) * 1.02
        self.begin_s = begin_s - self.span_s * 0.01
        self.end_s = self.begin_s + self.span_s

    def __call__(self, at_s: float) -> float:
        share = (at_s - self.begin_s) / self.span_s
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)


def axis(scale: Scale, y: float, bottom: float) -> Iterator[str]:
    step_s = next((step for step in _STEPS_S if scale.span_s / step <= 10), scale.span_s / 5)
    yield f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    day, number = "", int(-(-scale.begin_s // step_s))
    while (at_s := number * step_s) <= scale.end_s:
        x, number = scale(at_s), number + 1
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{bottom:.1f}"/>'
        today, clock = utc(at_s)[:10], _clock(at_s, step_s)
        if step_s < 86_400:
            yield f'<text class="soft small mid" x="{x:.1f}" y="{y - 5:.1f}">{clock}</text>'
        if today != day:
            above = y - (18 if step_s < 86_400 else 5)
            yield f'<text class="small mid" x="{x:.1f}" y="{above:.1f}">{today}</text>'
        day = today
    yield f'<text class="soft small end" x="{LEFT - 56}" y="{y - 5:.1f}">UTC</text>'


def _clock(at_s: float, step_s: float) -> str:
    clock_text = utc(at_s)[11:]
    return clock_text[:5] if step_s >= 60 else clock_text[:8] if step_s >= 1 else clock_text[:12]


def utc(at_s: float) -> str:
    """A time as 2026-01-31T14:05:00.250; in seconds since the epoch if no calendar date can hold it."""
    return shown(at_s, "milliseconds").removesuffix("Z")


# -- shapes and words --------------------------------------------------------------------------------------------------


def rect(kind: str, begin: float, end: float, y: float, height: float, radius: float = 0) -> str:
    width, rounded = max(0.5, end - begin), f' rx="{radius:g}"' if radius else ""
    return f'<rect class="{kind}" x="{begin:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{rounded}/>'


def diamond(x: float, y: float, r: float) -> str:
    return f'<path class="save" d="M{x:.1f} {y - r:.1f}l{r:.1f} {r:.1f} {-r:.1f} {r:.1f} {-r:.1f} {-r:.1f}z"/>'


def tip(lines: Iterable[str]) -> str:
    return f"<title>{escaped(short(chr(10).join(line for line in lines if line), 1500))}</title>"


def escaped(text: str) -> str:
    """A text for XML, without the characters that XML cannot hold even escaped."""
    return escape(_ILLEGAL.sub("\ufffd", text))


def short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def middle_cut(text: str, chars_max: int) -> str:
    """A text of at most chars_max characters. If it is too long, its middle is cut out: messages often begin with their
    kind and end with their subject."""
    if len(text) <= chars_max:
        return text
    tail = (chars_max - 1) // 2
    return f"{text[: chars_max - 1 - tail]}…{text[len(text) - tail :]}"


def fitting(words: str, width: float, cut: Callable[[str, int], str] = short) -> str:
    """The part of a text that fits into `width` pixels; "" if it would be too short to mean anything. cut: shortens a
    text to a number of characters."""
    room = int(width / (CHAR * 0.93))
    return words if len(words) <= room else cut(words, room) if room >= 12 else ""


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def style() -> str:
    dark = _in(DARK) + "".join(f".o-{kind}{{fill:{fill}}}" for kind, (_, fill, _) in OUTCOMES.items())
    light = _in(LIGHT) + "".join(f".o-{kind}{{fill:{fill}}}" for kind, (fill, _, _) in OUTCOMES.items())
    return f"{light}\n@media (prefers-color-scheme:dark){{{dark}}}"


def _in(colours: dict[str, str]) -> str:
    return re.sub("[A-Z]{3,}", lambda found: colours.get(found[0], found[0]), _STYLE)
