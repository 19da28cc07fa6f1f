"""Charts as SVG: lines over a linear or logarithmic axis, and bars. Only what the performance page needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 36, 84, 56
_COLORS = ("#1f5fa8", "#d1495b", "#2e8b57", "#8a6d00", "#6a4c93", "#555555")
_DASHES = ("", "6 4", "2 3")
_BAR = 34

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """A line. Lines with one ``color`` belong together; ``dash`` distinguishes them."""

    name: str
    points: Points
    color: int = 0
    dash: int = 0


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with its label. ``ticks`` replace those that follow from the values."""

    label: str
    logarithmic: bool = False
    ticks: Sequence[float] = ()


class _Scale:
    """Places values of an axis between two coordinates."""

    def __init__(self, axis: Axis, values: Sequence[float], begin: float, end: float) -> None:
        self._logarithmic = axis.logarithmic
        self._begin, self._end = begin, end
        if axis.logarithmic:
            self.ticks = list(axis.ticks) or _logarithmic_ticks(min(values), max(values))
            self._low, self._high = math.log10(self.ticks[0]), math.log10(self.ticks[-1])
        else:
            step = _nice_step(max(values))
            self.ticks = list(axis.ticks) or [step * index for index in range(math.ceil(max(values) / step) + 1)]
            self._low, self._high = 0.0, self.ticks[-1]

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self._logarithmic else value
        share = (place - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        return self._begin + share * (self._end - self._begin)


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Return a chart of lines with a mark at each point."""
    across = _Scale(x, [point[0] for line in series for point in line.points], _LEFT, _WIDTH - _RIGHT)
    up = _Scale(y, [point[1] for line in series for point in line.points], _HEIGHT - _BOTTOM, _TOP)
    return _picture(
        title,
        _HEIGHT,
        [
            *(_tick_across(across(tick), _number(tick)) for tick in across.ticks),
            *(_tick_up(up(tick), _number(tick)) for tick in up.ticks),
            _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, x.label, "middle"),
            f'<text transform="translate(18 {(_TOP + _HEIGHT - _BOTTOM) / 2:g}) rotate(-90)" text-anchor="middle">'
            f"{escape(y.label)}</text>",
            *(shape for line in series for shape in _line(line, across, up)),
            *_legend(series),
        ],
    )


def bar_chart(title: str, label: str, bars: Sequence[tuple[str, float]]) -> str:
    """Return horizontal bars, each with its name above and its value at its end."""
    height = 60 + (_BAR + 22) * len(bars)
    widest = max(value for _, value in bars)
    shapes = []
    for index, (name, value) in enumerate(bars):
        top = 58 + index * (_BAR + 22)
        width = (_WIDTH - 210) * value / widest
        shapes += [
            _text(20, top, name),
            f'<rect x="20" y="{top + 5:g}" width="{width:.1f}" height="{_BAR - 10}" fill="{_COLORS[index % 6]}"/>',
            _text(28 + width, top + 22, f"{_number(value)} {label}"),
        ]
    return _picture(title, height, shapes)


def _picture(title: str, height: float, shapes: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {_WIDTH} {height:g}" font-family="sans-serif" font-size="13" fill="#1b2733">',
            f'<rect width="{_WIDTH}" height="{height:g}" fill="#ffffff"/>',
            f'<text x="20" y="26" font-size="15" font-weight="bold">{escape(title)}</text>',
            *shapes,
            "</svg>\n",
        ]
    )


def _line(line: Series, across: _Scale, up: _Scale) -> Iterator[str]:
    color = _COLORS[line.color % len(_COLORS)]
    places = [(across(x), up(y)) for x, y in sorted(line.points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{_dash(line)}/>'
    for x, y in places:
        yield _point(x, y, line)


def _legend(series: Sequence[Series]) -> Iterator[str]:
    """Two columns below the title."""
    for index, line in enumerate(series):
        x, y = 24 + 365 * (index % 2), 44 + 16 * (index // 2)
        color = _COLORS[line.color % len(_COLORS)]
        yield f'<line x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}" stroke="{color}" stroke-width="2"{_dash(line)}/>'
        yield _point(x + 13, y, line)
        yield _text(x + 32, y + 4, line.name)


def _point(x: float, y: float, line: Series) -> str:
    """Return a circle, hollow for a dashed line: a line with one point has no other mark."""
    color = _COLORS[line.color % len(_COLORS)]
    fill = "#ffffff" if _dash(line) else color
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{color}" stroke-width="1.5"/>'


def _dash(line: Series) -> str:
    dash = _DASHES[line.dash % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _tick_across(x: float, text: str) -> str:
    line = f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#e3e8ee"/>'
    return line + _text(x, _HEIGHT - _BOTTOM + 18, text, "middle")


def _tick_up(y: float, text: str) -> str:
    line = f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#e3e8ee"/>'
    return line + _text(_LEFT - 8, y + 4, text, "end")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten around two values, from the last below to the first above them."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5)]
    first = max((index for index, tick in enumerate(ticks) if tick <= low), default=0)
    last = min((index for index, tick in enumerate(ticks) if tick >= high), default=len(ticks) - 1)
    return ticks[first : last + 1]


def _nice_step(highest: float) -> float:
    """Return the distance of four to eight ticks between 0 and a value: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(highest / 4)) if highest > 0 else 1.0
    return next((power * factor for factor in (1, 2, 5) if highest / (power * factor) <= 8), power * 10)
