"""Picture of a matrix as a grid with named rows and columns."""

MOST_TOKENS = 150


def draw_grid(axes, values, rows, columns, title, highest=1.0):
    """Draw a matrix; larger values are darker.

    Args:
        axes: matplotlib.axes.Axes.
        values: array [R, C], values of at least 0.
        rows, columns: lists of R and of C strs, the names of the rows and of
            the columns. Names that look like TeX formulas are shown unchanged.
        title: str.
        highest: float, value of the darkest colour. Default 1.
    """
    axes.imshow(values, cmap="Blues", vmin=0, vmax=highest, aspect="equal")
    size = 9 if max(len(rows), len(columns)) <= 24 else 6
    for axis, names in ((axes.xaxis, columns), (axes.yaxis, rows)):
        axis.set_ticks(range(len(names)))
        axis.set_ticklabels(names, fontsize=size)
        for label in axis.get_ticklabels():
            label.set_parse_math(False)
    axes.tick_params(axis="x", labelrotation=90)
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="#dddddd", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)


def figure_of(num_rows, num_columns, panels=1):
    """Make a Figure with room for `panels` grids side by side.

    Raises:
        ValueError: if the number of rows or columns is too large.
    """
    from matplotlib.figure import Figure

    count = max(num_rows, num_columns)
    if count > MOST_TOKENS:
        raise ValueError(
            f"a picture shows at most {MOST_TOKENS} tokens. Received: {count}. "
            "Cut the text."
        )

    cell = 0.32 if max(num_rows, num_columns) <= 24 else 0.2
    width = 2.0 + cell * num_columns
    return Figure(
        figsize=(panels * width, 1.8 + cell * num_rows), layout="constrained"
    )
