"""The look of the figures: colours that colour-blind readers tell apart, and matplotlib's settings.

The page shows the same drawings in light and dark: each colour has a name there, and CSS says what
it is. In print the light ones hold.
"""

from __future__ import annotations

from typing import Any

# name: (light, dark). A figure is drawn with the light ones; no two are alike.
THEME = {
    "ink": ("#222222", "#E6E8EB"),
    "soft": ("#5A5F66", "#A4ABB4"),
    "faint": ("#8A8A8A", "#7C838C"),
    "grid": ("#E4E4E4", "#31363D"),
    "paper": ("#FFFFFF", "#16191D"),
    # Okabe and Ito's, one a run.
    "run-1": ("#0072B2", "#4BA6E8"),
    "run-2": ("#D55E00", "#FF8B4A"),
    "run-3": ("#009E73", "#35C79C"),
    "run-4": ("#CC79A7", "#E59CC6"),
    "run-5": ("#E69F00", "#F5BE4F"),
    "run-6": ("#56B4E9", "#9AD6FA"),
    # Tol's muted ones, of what time goes by.
    "generation": ("#88CCEE", "#88CBEC"),
    "logprobs": ("#44AA99", "#44A998"),
    "training": ("#4C5FA8", "#7D90DC"),
    "transfer": ("#DDCC77", "#DCCB76"),
    "rest": ("#C6C9CC", "#575D65"),
    "load": ("#117733", "#3E9E5C"),
    "lost": ("#CC6677", "#DE7F8F"),
    "spares": ("#BBA9CC", "#8F7CA6"),
}
LIGHT = {name: light for name, (light, _) in THEME.items()}
INK, SOFT, FAINT, PAPER = (LIGHT[name] for name in ("ink", "soft", "faint", "paper"))
RUNS = [colour for name, colour in LIGHT.items() if name.startswith("run-")]
# Another one each time that the colours begin anew; and its outline in a legend of 24 × 10.
MARKERS = {
    "o": "M12 2a3 3 0 1 0 .01 0z",
    "s": "M9 2h6v6h-6z",
    "^": "M12 1l4 7h-8z",
    "D": "M12 1l4 4-4 4-4-4z",
}

PUBLISHED: dict[str, Any] = {"ls": (0, (5, 3)), "lw": 1.2, "alpha": 0.8}
RESTART: dict[str, Any] = {"ls": (0, (1, 2)), "lw": 1, "color": FAINT}
CHECKPOINT: dict[str, Any] = {
    "ls": "none",
    "marker": "D",
    "ms": 4.5,
    "mfc": PAPER,
    "mec": INK,
    "mew": 1.1,
}

STYLE: Any = {  # Any: matplotlib's own type for this is the list of all its keys
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": LIGHT["grid"],
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",  # text stays text: it can be searched, read out and copied
}


def of_run(at: int) -> tuple[str, str]:
    """(colour, marker) of the run number ``at``, the same in every panel."""
    return RUNS[at % len(RUNS)], list(MARKERS)[at // len(RUNS) % len(MARKERS)]
