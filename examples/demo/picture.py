"""The picture: mean departure delay by carrier and by scheduled hour, side by side."""

from collections.abc import Sequence
from pathlib import Path

INK, GRID, BAR = "#222222", "#dddddd", "#3b6ea5"
# What airlines' names end in and nobody says.
SUFFIXES = (" Inc.", " Co.", " Corporation")


def draw(
    when: str,
    by_carrier: Sequence[tuple[str, str, int, float]],
    by_hour: Sequence[tuple[int, int, float]],
    path: Path,
) -> None:
    """Write a PNG. ``by_carrier``: (carrier, name, flights, mean) in order; ``by_hour``: (hour,
    flights, mean)."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(12, 5.2), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.1))
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    figure.suptitle(
        f"Flights from New York, {when}: mean departure delay in minutes", color=INK, fontsize=13
    )

    names = [short_name(name) for _, name, _, _ in by_carrier]
    means = [mean for _, _, _, mean in by_carrier]
    bars = left.barh(names, means, color=BAR)
    left.bar_label(bars, [f"{mean:.1f}" for mean in means], padding=3, color=INK, fontsize=8)
    left.invert_yaxis()
    left.set_title("by carrier", color=INK, fontsize=11)
    left.margins(x=0.1)
    left.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    left.grid(axis="x", color=GRID)

    hours = [hour for hour, _, _ in by_hour]
    bars = right.bar(hours, [mean for _, _, mean in by_hour], color=BAR, width=0.75)
    right.bar_label(
        bars, [f"{mean:.0f}" for _, _, mean in by_hour], padding=2, color=INK, fontsize=8
    )
    right.margins(y=0.08)
    right.set_xticks(hours)
    right.set_xlabel("scheduled hour of departure", color=INK)
    right.set_title("by scheduled hour", color=INK, fontsize=11)
    right.grid(axis="y", color=GRID)

    for panel in (left, right):
        panel.set_axisbelow(True)
        panel.tick_params(length=0, colors=INK, labelsize=9)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)


def short_name(name: str) -> str:
    """An airline's name without what all of them have."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name
