"""A timeline as SVG, by itself or in a page of HTML. Pure; the picture fetches nothing and runs no script.

From the top: operations of people, leaders, then a row for each attempt (many attempts share rows). Time runs to the right.
Texts that do not fit are tooltips (`<title>`). The picture has colours for light and dark mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ledger.history.svg import (
    CHAR,
    DARK,
    GAP,
    LEFT,
    LIGHT,
    OUTCOMES,
    RIGHT,
    WIDTH,
    Scale,
    axis,
    diamond,
    escaped,
    fitting,
    middle_cut,
    rect,
    short,
    span,
    style,
    tip,
    utc,
)  # fmt: skip
from ledger.history.timeline import AttemptSpan, CheckpointMark, Operation, Stall, Timeline, WaitSpan
from ledger.reader.reasons import gist

RUNS_MAX = 1000  # attempts drawn, the newest ones
ROWS_MAX = 40  # up to so many attempts have a row each; more share rows
ACTS_MAX = 500  # operations drawn, the newest ones
LANES_MAX = 6  # lanes for texts of operations; more operations show only a flag
_ROW, _SHARED_ROW = 28.0, 22.0
_NUMBER = 30.0  # room for the number of an attempt behind its bar
_TICKED = 14.0  # a bar that is narrower shows no checkpoints


def svg(line: Timeline) -> str:
    """A timeline as the text of an SVG file."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_picture(line)}\n'


def html(line: Timeline) -> str:
    """A timeline as an HTML page that contains the SVG."""
    paper = f"body{{margin:24px;background:{LIGHT['PAPER']}}}svg{{max-width:100%;height:auto}}"
    dark = f"@media (prefers-color-scheme:dark){{body{{background:{DARK['PAPER']}}}}}"
    head = f'<meta charset="utf-8">\n<title>{escaped(_title(line))}</title>\n<style>{paper}{dark}</style>'
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{_picture(line)}\n</body>\n</html>\n'


class _Placed(NamedTuple):
    """An attempt in the picture. end_s: of its bar. y: the middle of its row."""

    run: AttemptSpan
    end_s: float
    y: float


def _picture(line: Timeline) -> str:
    runs = line.runs[-RUNS_MAX:]
    scale = Scale(line.begin_s, line.end_s)
    lanes = _lanes(line.acts[-ACTS_MAX:], scale)
    roles = list(dict.fromkeys(leadership.role for leadership in line.leaderships))
    acts_y = 100.0
    reigns_y = acts_y + 16 * (max((lane for _, lane in lanes), default=0) + 1) + 4
    top = reigns_y + 20 * len(roles) + 10
    shared = len(runs) > ROWS_MAX
    placed, last = (_in_shared_rows if shared else _in_own_rows)(line, runs, scale, top)
    bottom = last + (_ROW if line.wait is not None else 0.0)
    parts = [
        *_head(line, len(runs)),
        *_stripes(top, last, _SHARED_ROW if shared else _ROW, bottom),
        *axis(scale, acts_y - 18, bottom),
        *_acts(lanes, scale, acts_y, bottom),
        *(part for number, role in enumerate(roles) for part in _role(line, role, scale, reigns_y + 20 * number)),
        *_attempts(line, placed, scale, shared),
        *([] if line.wait is None else _waiting(line.wait, scale, last + _ROW / 2)),
        *_legend(runs, line, bottom + 32),
    ]
    body, height = "\n".join(parts), f"{bottom + 52:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escaped(_title(line))}">\n<style>{style()}</style>\n'
        f'<rect class="paper" width="100%" height="100%"/>\n{body}\n</svg>'
    )


# -- above the attempts ------------------------------------------------------------------------------------------------


def _title(line: Timeline) -> str:
    return f"{line.namespace}/{line.name}" if line.name else line.job_id


def _head(line: Timeline, drawn: int) -> Iterator[str]:
    saves = sum(mark.savepoint for mark in line.marks)
    counts = [_count(len(line.runs), "attempt"), _count(len(line.marks) - saves, "checkpoint"), _count(saves, "savepoint")]
    if drawn < len(line.runs):
        counts[0] += f", the newest {drawn} of them here"
    about = [line.job_id, line.runner, *counts, f"as of {utc(line.moment_s)[:19]}Z"]
    yield f'<text class="title" x="{GAP}" y="26">{escaped(short(_title(line), 110))}</text>'
    yield f'<text class="soft" x="{GAP}" y="44">{escaped("  ·  ".join(part for part in about if part))}</text>'


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _lanes(acts: Sequence[Operation], scale: Scale) -> list[tuple[Operation, int]]:
    """Each operation with the first lane in which its text fits; -1 = none."""
    ends: list[float] = []
    placed = []
    for act in acts:
        begin, end = _words_at(act, scale)
        lane = next((number for number, taken in enumerate(ends) if taken < begin), len(ends))
        if lane == LANES_MAX:
            placed.append((act, -1))
            continue
        ends[lane : lane + 1] = [end + GAP]
        placed.append((act, lane))
    return placed


def _words(act: Operation) -> str:
    return short(" · ".join(part for part in (act.what, act.actor if act.by_people else "", act.reason) if part), 64)


def _words_at(act: Operation, scale: Scale) -> tuple[float, float]:
    """Begin and end of flag and text. The text is right of the flag, or left of it at the right edge."""
    x, width = scale(act.at_s), 8 + CHAR * len(_words(act))
    return (x - width - 2, x + 4) if x + width > WIDTH - 4 else (x - 5, x + width)


def _acts(lanes: Sequence[tuple[Operation, int]], scale: Scale, y: float, bottom: float) -> Iterator[str]:
    if lanes:
        yield f'<text class="soft end" x="{LEFT - GAP}" y="{y + 4:.1f}">acts</text>'
    for act, lane in lanes:  # all lines first, so that texts cover them
        if act.by_people:
            x, at = scale(act.at_s), y + 16 * max(0, lane)
            yield f'<line class="act" x1="{x:.1f}" x2="{x:.1f}" y1="{at:.1f}" y2="{bottom:.1f}"/>'
    for act, lane in lanes:
        x, at = scale(act.at_s), y + 16 * max(0, lane)
        begin, _ = _words_at(act, scale)
        title = tip([act.what, f"by {act.actor}" if act.actor else "", act.reason, f"{utc(act.at_s)}Z", act.clock])
        kind = "flag" if act.by_people else "ours"
        parts = [title, f'<circle class="{kind}" cx="{x:.1f}" cy="{at:.1f}" r="3.5"/>']
        if lane >= 0:
            attributes = f'x="{x - 8:.1f}" class="end over"' if begin < x - 5 else f'x="{x + 8:.1f}" class="over"'
            parts.append(f'<text {attributes} y="{at + 4:.1f}">{escaped(_words(act))}</text>')
        yield f"<g>{''.join(parts)}</g>"


def _role(line: Timeline, role: str, scale: Scale, y: float) -> Iterator[str]:
    yield f'<text class="soft end" x="{LEFT - GAP}" y="{y + 11:.1f}">{escaped(short(role, 18))}</text>'
    leaderships = [leadership for leadership in line.leaderships if leadership.role == role]
    for leadership, end_s in zip(leaderships, [*(later.begin_s for later in leaderships[1:]), line.end_s], strict=True):
        begin, end = scale(max(leadership.begin_s, scale.begin_s)), scale(max(end_s, leadership.begin_s))
        words = fitting(f"epoch {leadership.epoch}", end - begin) or fitting(str(leadership.epoch), end - begin)
        text = f'<text class="small" x="{begin + 4:.1f}" y="{y + 11:.1f}">{words}</text>' if words else ""
        title = tip(
            [
                f"epoch {leadership.epoch} of the {role}",
                leadership.writer,
                leadership.reason,
                f"from {utc(leadership.begin_s)}Z",
            ]
        )
        yield f"<g>{title}{rect('leadership', begin, end, y, 15)}{text}</g>"


# -- the attempts ------------------------------------------------------------------------------------------------------


def _in_own_rows(line: Timeline, runs: Sequence[AttemptSpan], _: Scale, top: float) -> tuple[list[_Placed], float]:
    """Each attempt in a row of its own, and the bottom of the last row."""
    middles = [top + _ROW * (number + 0.5) for number in range(len(runs))]
    return [_Placed(run, _end_s(line, runs, i), middles[i]) for i, run in enumerate(runs)], top + _ROW * max(1, len(runs))


def _in_shared_rows(line: Timeline, runs: Sequence[AttemptSpan], scale: Scale, top: float) -> tuple[list[_Placed], float]:
    """Each attempt in the first row with room for it and its number. Two hundred rows would be a diagonal of dots."""
    ends: list[float] = []
    placed = []
    for number, run in enumerate(runs):
        begin, end_s = scale(run.begin_s), _end_s(line, runs, number)
        row = next((row for row, end in enumerate(ends) if end <= begin), len(ends))
        ends[row : row + 1] = [max(scale(end_s), begin + 2) + _NUMBER]
        placed.append(_Placed(run, end_s, top + _SHARED_ROW * (row + 0.5)))
    return placed, top + _SHARED_ROW * len(ends)


def _end_s(line: Timeline, runs: Sequence[AttemptSpan], number: int) -> float:
    """The end of an attempt. Without a recorded end: the begin of the next one, or now."""
    run = runs[number]
    later = runs[number + 1].begin_s if number + 1 < len(runs) else line.end_s
    return max(run.begin_s, later if run.end_s is None else run.end_s)


def _stripes(top: float, last: float, row: float, bottom: float) -> Iterator[str]:
    """A stripe behind every other row, and a line at the bottom. last: the bottom of the attempts' rows."""
    for number in range(0, round((last - top) / row), 2):
        y = top + row * number
        yield f'<rect class="stripe" x="{LEFT}" y="{y:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{row:.1f}"/>'
    yield f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>'


def _attempts(line: Timeline, placed: Sequence[_Placed], scale: Scale, shared: bool) -> Iterator[str]:
    marks: dict[int, list[CheckpointMark]] = {}
    for mark in line.marks:
        marks.setdefault(mark.n, []).append(mark)
    at = {(mark.n, mark.id): scale(mark.at_s) for mark in line.marks}
    middle = {one.run.n: one.y for one in placed}
    thin = 14.0 if shared else 17.0
    if shared and placed:
        yield f'<text class="soft end" x="{LEFT - GAP}" y="{placed[0].y + 4:.1f}">attempts</text>'
    for one in placed:
        run, begin = one.run, scale(one.run.begin_s)
        back = at.get(run.base) if run.base is not None and run.base[0] in middle else None
        if back is not None and run.base is not None and not shared:
            yield _way_back(back, middle[run.base[0]] + thin / 2, begin, one.y)
        yield from _bar(one, scale, thin, len(marks.get(run.n, ())))
        yield from (_stalled(stall, scale, one, thin) for stall in line.stalls if stall.n == run.n)
        yield from _ticks(marks.get(run.n, ()), scale, one, thin)
        if shared:
            saved = [at[mark.n, mark.id] + 3 for mark in marks.get(run.n, ()) if mark.savepoint]
            x = max(scale(one.end_s) + (6 if run.end_s is None else 0), begin + 2, *saved, 0) + 3
            yield f'<text class="soft small over" x="{x:.1f}" y="{one.y + 3.5:.1f}">{run.n}</text>'
        else:
            yield f'<text class="end" x="{LEFT - GAP}" y="{one.y + 4:.1f}">attempt {run.n}</text>'
            yield from _said(one, scale, begin if back is None else min(begin, back))


def _bar(one: _Placed, scale: Scale, thin: float, marks: int) -> Iterator[str]:
    run, y = one.run, one.y - thin / 2
    kind = run.outcome if run.outcome in OUTCOMES else "open"
    begin, end = scale(run.begin_s), max(scale(one.end_s), scale(run.begin_s) + 2)
    middle = end if run.running_s is None else min(end, max(begin, scale(run.running_s)))
    if run.running_s is None and run.end_s is None:
        middle = begin  # only its record is known, so the time of its start is unknown
    lasted = f"{utc(run.begin_s)}Z, for {span(max(0.0, one.end_s - run.begin_s))}"
    made = f"{marks} checkpoints and savepoints" if marks else "no checkpoint"
    title = tip([f"attempt {run.n}: {run.outcome or 'no end known'}", lasted, made, *run.notes, run.cause])
    parts = [title]
    if middle - begin > 0.5:
        parts.append(rect(f"starting o-{kind}", begin, middle, y, thin, 2))
    parts.append(rect(f"o-{kind}", min(middle, end - 1.5), end, y, thin, 2))
    if run.end_s is None:  # it goes on
        parts.append(f'<path class="o-{kind}" d="M{end + 2:.1f} {y:.1f}l6 {thin / 2:.1f} -6 {thin / 2:.1f}z"/>')
    yield f"<g>{''.join(parts)}</g>"


def _stalled(stall: Stall, scale: Scale, one: _Placed, thin: float) -> str:
    begin, end = scale(stall.begin_s), min(scale(stall.end_s), scale(one.end_s))
    lasted = f"{utc(stall.begin_s)}Z, for {span(max(0.0, stall.end_s - stall.begin_s))}"
    title = tip([f"attempt {stall.n} stalled", lasted, f"no checkpoint for more than {span(stall.after_s)}"])
    return f"<g>{title}{rect('stall', begin, max(begin, end), one.y + thin / 2 - 4, 4)}</g>"


def _waiting(wait: WaitSpan, scale: Scale, y: float) -> Iterator[str]:
    """The state of the job since its last attempt, in a row of its own."""
    begin, end = scale(wait.begin_s), scale(wait.end_s)
    lasted_text = f"since {utc(wait.begin_s)}Z, for {span(max(0.0, wait.end_s - wait.begin_s))}"
    words = " · ".join(part for part in (lasted_text, gist(wait.reason)) if part)
    title = tip([wait.state, lasted_text, wait.reason])
    yield f'<text class="end" x="{LEFT - GAP}" y="{y + 4:.1f}">{escaped(short(wait.state, 14))}</text>'
    yield f"<g>{title}{rect('wait', begin, max(end, begin + 2), y - 8.5, 17, 2)}</g>"
    candidates = [
        (fitting(words, end - begin - 12, middle_cut), begin + 6, ""),
        (fitting(words, WIDTH - 4 - end - 8, middle_cut), end + 6, ""),
        (fitting(words, begin - LEFT - 8, middle_cut), begin - 6, " end"),
    ]
    best, x, kind = max(candidates, key=lambda attributes: len(attributes[0]))
    if best:
        yield f'<text class="soft small over{kind}" x="{x:.1f}" y="{y + 3.5:.1f}">{escaped(best)}</text>'


def _ticks(marks: Sequence[CheckpointMark], scale: Scale, one: _Placed, thin: float) -> Iterator[str]:
    """Ticks of checkpoints. One is drawn for several at one position, and none if they would hide the bar."""
    at: dict[int, list[CheckpointMark]] = {}
    if scale(one.end_s) - scale(one.run.begin_s) > _TICKED:
        for mark in marks:
            if not mark.savepoint:
                at.setdefault(int(scale(mark.at_s) / 4), []).append(mark)
    y1, y2 = one.y - thin / 2 + 1, one.y + thin / 2 - 1
    for found in at.values():
        x, first, last = scale(found[0].at_s), found[0], found[-1]
        which = f"checkpoint {first.n}/{first.id}"
        if len(found) > 1:
            which = f"{len(found)} checkpoints, {first.n}/{first.id} to {last.n}/{last.id}"
        pruned = "superseded" if all(mark.pruned for mark in found) else ""
        title = tip([which, last.location, f"{utc(last.at_s)}Z", last.clock, pruned])
        yield f'<g>{title}<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/></g>'
    for mark in (mark for mark in marks if mark.savepoint):
        title = tip([f"savepoint {mark.n}/{mark.id}", mark.location, f"{utc(mark.at_s)}Z", mark.clock])
        yield f"<g>{title}{diamond(scale(mark.at_s), one.y, 3.5 if thin < 16 else 5)}</g>"


def _said(one: _Placed, scale: Scale, left_x: float) -> Iterator[str]:
    """Outcome and cause beside the bar, if there is room."""
    run, end = one.run, max(scale(one.end_s), scale(one.run.begin_s) + 2)
    words = middle_cut(": ".join(part for part in (run.outcome, gist(run.cause)) if part), 130) if run.outcome else ""
    right, left = fitting(words, WIDTH - 4 - end - 8, middle_cut), fitting(words, left_x - LEFT - 8, middle_cut)
    if len(left) > len(right):
        yield f'<text class="soft small end over" x="{left_x - 6:.1f}" y="{one.y + 3.5:.1f}">{escaped(left)}</text>'
    elif right:
        yield f'<text class="soft small over" x="{end + 6:.1f}" y="{one.y + 3.5:.1f}">{escaped(right)}</text>'


def _way_back(x1: float, y1: float, x2: float, y2: float) -> str:
    """The line from a restore point to the attempt that started from it."""
    return f'<path class="back" d="M{x1:.1f} {y1:.1f} C{x1:.1f} {y2:.1f} {x1:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"/>'


def _legend(runs: Iterable[AttemptSpan], line: Timeline, y: float) -> Iterator[str]:
    marks = line.marks
    used = {run.outcome if run.outcome in OUTCOMES else "open" for run in runs}
    keys: list[tuple[str, Callable[[float], str]]] = [
        (said, lambda x, kind=kind: rect(f"o-{kind}", x, x + 14, y - 9, 10, 2))  # type: ignore[misc]
        for kind, (_, _, said) in OUTCOMES.items() if kind in used
    ]  # fmt: skip
    if any(not mark.savepoint for mark in marks):
        tick = f'y1="{y - 9:.1f}" y2="{y + 1:.1f}"/>'
        keys.append(("checkpoint", lambda x: rect("o-stopped", x, x + 14, y - 9, 10, 2)
                     + f'<line class="tick" x1="{x + 7:.1f}" x2="{x + 7:.1f}" {tick}'))  # fmt: skip
    if any(mark.savepoint for mark in marks):
        keys.append(("savepoint", lambda x: diamond(x + 7, y - 4, 5)))
    if line.stalls:
        keys.append(("stalled", lambda x: rect("stall", x, x + 14, y - 6, 4)))
    x = float(LEFT)
    for said, drawn in keys:
        yield f'{drawn(x)}<text class="soft" x="{x + 20:.1f}" y="{y:.1f}">{said}</text>'
        x += 20 + CHAR * len(said) + 22
