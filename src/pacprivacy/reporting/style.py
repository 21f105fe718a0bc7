"""Style of all pictures: one palette, one set of axes, files, and pictures for the page.

For the page matplotlib's SVG is stripped to shapes and texts, and every colour becomes a variable
of the page's style sheet: one picture for light screens, dark ones and paper.
"""

import functools
import html
import importlib.util
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar
from xml.etree import ElementTree

from pacprivacy.errors import DataError

# Okabe and Ito's colours: told apart with any kind of colour blindness, and in grey.
BLUE: Final = "#0072b2"
ORANGE: Final = "#d55e00"
GREEN: Final = "#009e73"
PALETTE: Final = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9")
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
INK: Final = "#333333"
SOFT: Final = "#667085"
GREY: Final = "#c9ced6"
RULE: Final = "#dfe3e8"
ROOM: Final = "#dbe9f5"
PAPER: Final = "#ffffff"
ON_PAGE: Final = {
    BLUE: "blue", ORANGE: "orange", GREEN: "green", INK: "ink", SOFT: "soft", GREY: "grey",
    RULE: "rule", ROOM: "blue-soft", PAPER: "card",
}  # fmt: skip

FORMATS: Final = (".png", ".svg", ".pdf")
WIDTH: Final = 8.8
PAGE_WIDTH: Final = 6.6  # narrower: its texts are read on a phone too
BESIDE_WIDTH: Final = 4.4  # of a picture beside a table
STYLE: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": SOFT,
    "axes.labelsize": 12,
    "axes.prop_cycle": f"cycler('color', {PALETTE}) + cycler('marker', {MARKERS})",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.unicode_minus": False,
    "figure.dpi": 72,
    "font.size": 12,
    "grid.color": RULE,
    "legend.fontsize": 12,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 2.2,
    "lines.markeredgecolor": PAPER,
    "lines.markersize": 7,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # names may hold a dollar
    "xtick.labelcolor": SOFT,
    "xtick.major.pad": 7,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.labelcolor": SOFT,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}

Axes: TypeAlias = Any  # of matplotlib, which is imported only to draw
Figure: TypeAlias = Any

P = ParamSpec("P")
Drawn = TypeVar("Drawn")


def styled(draw: Callable[P, Drawn]) -> Callable[P, Drawn]:
    """Let a function draw in this style, whatever the user's own settings are."""

    @functools.wraps(draw)
    def draw_styled(*args: P.args, **options: P.kwargs) -> Drawn:
        if not can_draw():
            raise DataError(
                "matplotlib must be installed to draw. Run in a checkout: pip install '.[plot]'"
            )
        import matplotlib as mpl  # slow to import, and needed for pictures only

        with mpl.rc_context(STYLE):
            return draw(*args, **options)

    return draw_styled


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


@functools.cache
def _figure_class() -> Any:
    from matplotlib import figure  # slow to import, and needed for pictures only

    class NotebookFigure(figure.Figure):
        """A figure that a notebook shows, whatever its settings are."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return NotebookFigure


def styled_figure(height: float, width: float = WIDTH) -> Figure:
    return _figure_class()(figsize=(width, height), layout="constrained")


def save_styled(figure: Figure, path: str | Path | None) -> Figure:
    if path is None:
        return figure
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise DataError(
            f"plot must end in {', '.join(FORMATS)}; got {target.name[:60]!r}. Name it plot.png."
        )
    try:
        figure.savefig(target)
    except OSError as error:
        raise DataError(
            f"plot must be a file that can be written; got {target}: {error.strerror}. "
            "Choose another folder."
        ) from None
    return figure


def style_axes(axes: Axes, x: str, y: str) -> None:
    """Name the axes, the vertical one above and upright."""
    axes.set_xlabel(x)
    axes.set_title(y, fontsize=12, fontweight="normal", color=SOFT)


def style_number(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


UNWRITTEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # XML has none of them


def style_svg(figure: Figure, title: str) -> str:
    """Return a figure as plain SVG for the page."""
    import matplotlib as mpl  # slow to import, and needed for pictures only

    buffer = io.BytesIO()
    # A salt for the names of shapes: the same in every run.
    with mpl.rc_context({"svg.hashsalt": title}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the reader's browser has fonts of its own
        figure.savefig(buffer, format="svg", transparent=True)
    drawn = ElementTree.fromstring(UNWRITTEN.sub(" ", buffer.getvalue().decode()))
    shapes = (_plain(child) for child in drawn)
    body = "".join(
        ElementTree.tostring(shape, encoding="unicode") for shape in shapes if shape is not None
    )
    box = drawn.get("viewBox")
    return f'<svg viewBox="{box}" role="img" aria-label="{html.escape(title)}">{body}</svg>'


SHAPES: Final = frozenset({"g", "defs", "path", "use", "text", "tspan"})
KEPT: Final = frozenset({
    "d", "x", "y", "transform", "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity",
    "fill-opacity", "text-anchor",
})  # fmt: skip


def _plain(node: ElementTree.Element) -> ElementTree.Element | None:
    """Return a shape with attributes in place of styles, which the page's policy forbids."""
    tag = node.tag.rpartition("}")[2]
    style = [item.partition(":") for item in node.get("style", "").split(";")]
    attributes = {name.strip(): value.strip() for name, _, value in style} | dict(node.items())
    kept = {name: value for name, value in attributes.items() if name in KEPT}
    for name in ("fill", "stroke"):
        if (colour := kept.get(name, "").lower()) in ON_PAGE:
            kept[name] = f"var(--{ON_PAGE[colour]})"
    if tag == "text" and re.search(
        "bold|[67]00", attributes.get("font-weight", attributes.get("font", ""))
    ):
        kept["font-weight"] = "600"
    if "{http://www.w3.org/1999/xlink}href" in attributes:
        kept["xlink:href"] = attributes["{http://www.w3.org/1999/xlink}href"]
    if tag == "path" and "id" in attributes:  # a marker, which is used by its name
        kept["id"] = attributes["id"]
    shape = ElementTree.Element(tag, kept)
    shape.text = node.text if tag in ("text", "tspan") else None
    shape.extend(child for child in map(_plain, node) if child is not None)
    unseen = kept.get("fill") == "none" and "stroke" not in kept
    empty = tag in ("g", "defs") and not len(shape)
    return None if tag not in SHAPES or unseen or empty else shape
