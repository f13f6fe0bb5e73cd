"""The results as pictures: bars of times, and curves of long documents."""

_COLOURS = {
    "xlnet_tf": "#1b6ca8",
    "Model Garden": "#e08e0b",
    "Hugging Face": "#7a9e3a",
    "KerasHub": "#b0413e",
    "SentencePiece": "#888888",
}
_CURVES = "long_document"
_ROW_INCHES = 0.3


def draw(directory, results):
    """Writes `results.png`, and `long_document.png` where it was measured.

    Args:
        directory: path.
        results: dict; see `report.write`.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [
        (measurement, rows)
        for measurement in results["measurements"]
        if measurement["group"] != _CURVES and (rows := _measured(measurement))
    ]
    if panels:
        figure = _bars(pyplot, panels)
        figure.savefig(directory / "results.png", dpi=150)
        pyplot.close(figure)
    curves = [m for m in results["measurements"] if m["group"] == _CURVES]
    if curves:
        figure = _long_document(pyplot, curves)
        figure.savefig(directory / "long_document.png", dpi=150)
        pyplot.close(figure)


def _bars(pyplot, panels):
    """Horizontal bars of median times, with quartiles."""
    heights = [len(rows) + 2.2 for _, rows in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(8, _ROW_INCHES * sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for (measurement, rows), axis in zip(panels, axes[:, 0], strict=True):
        _panel(axis, measurement, rows)
    return figure


def _panel(axis, measurement, rows):
    what = "call"
    times = [row["seconds_quartiles"] for row in rows]
    if len({row["items"] for row in rows}) > 1:
        what = measurement["item"].removesuffix("s")
        times = [
            [time / row["items"] for time in quartiles]
            for quartiles, row in zip(times, rows, strict=True)
        ]
    longest = max(median for _, median, _ in times)
    scale, unit = (1, "s") if longest >= 1 else (1e3, "ms")
    times = [[time * scale for time in quartiles] for quartiles in times]
    places = range(len(rows))
    axis.barh(
        places,
        [median for _, median, _ in times],
        xerr=[
            [median - low for low, median, _ in times],
            [high - median for _, median, high in times],
        ],
        color=[_COLOURS.get(row["library"], "#555555") for row in rows],
        error_kw={"elinewidth": 1, "ecolor": "#222222"},
        height=0.7,
    )
    for place, (_, median, high) in zip(places, times, strict=True):
        axis.annotate(
            f"{median:.3g}",
            (high, place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set_yticks(places, [row["name"] for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_title(measurement["title"], fontsize=9, loc="left")
    axis.set_xlabel(f"time of a {what} ({unit}), less is better", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _long_document(pyplot, measurements):
    """Time and memory against length."""
    figure, (times, memory) = pyplot.subplots(
        1, 2, figsize=(8, 3.4), layout="constrained"
    )
    curves = {}
    for measurement in measurements:
        for row in _measured(measurement):
            curves.setdefault(row["name"], []).append(
                (
                    measurement["items"],
                    row["seconds_quartiles"][1],
                    (row["running_bytes"] or row["peak_bytes"]) / 2**20,
                )
            )
    for name, points in curves.items():
        lengths, seconds, mebibytes = zip(*sorted(points), strict=True)
        times.plot(lengths, seconds, marker="o", label=name)
        memory.plot(lengths, mebibytes, marker="o")
    times.set_ylabel("time (s)")
    times.set_yscale("log")
    memory.set_ylabel("memory of the process (MiB)")
    memory.margins(y=0.1)
    memory.set_ylim(bottom=0)
    for axis in (times, memory):
        lengths = sorted(m["items"] for m in measurements)
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, list(map(str, lengths)), fontsize=8)
        axis.set_xlabel("length of the document (tokens)")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    if curves:
        times.legend(fontsize=8)
    return figure


def _measured(measurement):
    return [
        row for row in measurement["contenders"] if row["status"] == "measured"
    ]
