"""Loss by position on repeated random ids: where induction begins to pay, and what is lost with heads cut."""

import math

import numpy as np

from .captions import loss_caption
from .plots import INK, KINDS, RULE, SOFT, WIDTH, sheet


def band_line(axes, x, y, se, **options):
    """A line, and its band of one standard error where there is one."""
    (line,) = axes.plot(x, y, linewidth=1.3, **options)
    if se is not None:
        y, se = np.asarray(y, dtype=float), np.asarray(se, dtype=float)
        axes.fill_between(x, y - se, y + se, color=line.get_color(), alpha=0.22, linewidth=0)


def loss_by_position(table, run, kind="png", *, vocab_size, title="Loss by position on repeated random ids"):
    """Loss of each next token, clean and with heads cut: a matplotlib Figure.

    table: position (of the token predicted), copy (which copy of the block it stands in, from 1), loss, loss_se, and where
    heads were cut loss_cut, loss_cut_se, in nats. run: its record, which names the heads that were cut.
    """
    cut = str(run.get("arguments", {}).get("heads") or "").split() if "loss_cut" in table else []
    figure, place = sheet(title, loss_caption(cut, run), 3.1)
    axes = place(0.55, 0.1, WIDTH - 1.3, 2.6)
    position = table["position"]
    band_line(axes, position, table["loss"], table.get("loss_se"), color=KINDS[0].colour, label="clean")
    if "loss_cut" in table:
        band_line(axes, position, table["loss_cut"], table.get("loss_cut_se"), color=KINDS[1].colour, dashes=(4, 1.5),
                  label=f"without {', '.join(cut)}" if len(cut) <= 8 else f"without {len(cut)} heads")
    level = math.log(vocab_size)
    axes.axhline(level, color=RULE, linewidth=0.7, dashes=(1, 2), zorder=0)
    axes.text(1.005, level, f"ln {vocab_size:,}\n= {level:.2f}", fontsize=6.5, color=SOFT, va="center",
              transform=axes.get_yaxis_transform())
    axes.set(xlim=(position.min() - 0.5, position.max() + 0.5), xlabel="position of the token predicted",
             ylabel="loss (nats)")
    copies = table[table["copy"] > 1].groupby("copy")["position"].min()
    for copy, start in copies.items():
        axes.axvline(start, color=RULE, linewidth=0.8, zorder=0)
        axes.text(start, 1.0, f" copy {copy}", fontsize=6.5, color=SOFT, va="top", transform=axes.get_xaxis_transform())
    if len(copies):
        axes.axvspan(copies.iloc[0], position.max() + 1, color="#f1eef3", zorder=-1)
    axes.set_ylim(min(0, axes.get_ylim()[0]), axes.get_ylim()[1] * 1.06)
    if "loss_cut" in table:
        axes.legend(frameon=False, fontsize=7, labelcolor=INK, loc="lower left")
    return figure
