"""Report of the results as JSON and as tables in Markdown."""

import json


def write(directory, results):
    """Write `results.json` and `results.md`.

    Args:
        directory: path.
        results: dict of `machine`, `settings` and `measurements`; see
            `benchmarks.run`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(
        json.dumps(results, indent=1) + "\n", encoding="utf-8"
    )
    (directory / "results.md").write_text(markdown(results), encoding="utf-8")


def markdown(results):
    """Make the page `results.md`."""
    machine, settings = results["machine"], results["settings"]
    versions = ", ".join(
        f"{package} {version}"
        for package, version in machine["versions"].items()
        if version
    )
    lines = [
        "# Benchmarks",
        "",
        f"{machine['date']}; {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB; {machine['system']}, Python "
        f"{machine['python']}; threads: {machine['threads']}; load before the "
        f"run {machine['load_before']}.",
        "",
        f"{versions}.",
        "",
        f"Up to {settings['rounds']} rounds, in which the contenders take "
        "turns, each in a separate process; first run and warm-up are not "
        "timed. Times are medians (quartiles) of a call. The ratio is the time "
        "per item, divided by the first row's in the same round (above 1: "
        "slower). Memory is the process's peak: in total, without the memory "
        "of imports, and in the timed rounds. The share is the rate of the "
        "necessary operations (`benchmarks/workload/flops.py`), divided by the "
        "framework's rate of float32 matrix products of size "
        f"{settings['matmul_size']} in the same run.",
    ]
    if settings.get("text"):
        lines += ["", f"Text and tokenizer: {settings['text']}."]
    for measurement in results["measurements"]:
        lines += ["", *table(measurement)]
    return "\n".join(lines) + "\n"


def table(measurement):
    """Make the lines of one measurement's table."""
    lines = [
        f"## {measurement['title']}",
        "",
        f"`--only {measurement['name']}`"
        + (
            f"; {measurement['flops'] / 1e9:.4g} GFLOP a call"
            if measurement["flops"]
            else ""
        ),
        "",
        f"| contender | time | ratio | {measurement['item']}/s | first run "
        "| memory (beyond imports) | in the rounds | share |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    notes = []
    for row in measurement["contenders"]:
        if row["status"] == "measured":
            lines.append(_line(row))
        else:
            notes.append(f"- {row['name']}: {row['status']}, {row['reason']}")
    return lines + ([""] + notes if notes else [])


def matmul_rates(rows):
    """Find the best rate of matrix products of each framework.

    Other programs can lower a measured rate, so only the best rate of a run
    counts.

    Args:
        rows: list of dict with `framework` and `matmul_rate`.

    Returns:
        dict from framework to operations per second.
    """
    rates = {}
    for row in rows:
        rate = row.get("matmul_rate")
        if rate:
            framework = row["framework"]
            rates[framework] = max(rate, rates.get(framework, 0.0))
    return rates


def add_shares(measurements):
    """Add `share_of_matmul_rate` to the row of each contender, in place.

    The value is the contender's `flops_per_second`, divided by the best rate of
    matrix products in the contender's framework.

    Args:
        measurements: list of dict, all measurements of a run.
    """
    rows = [row for m in measurements for row in m["contenders"]]
    rates = matmul_rates(rows)
    for row in rows:
        rate = rates.get(row.get("framework"))
        flops = row.get("flops_per_second")
        row["share_of_matmul_rate"] = flops / rate if flops and rate else None


def time_text(seconds):
    """Format a time with a suitable unit."""
    if abs(seconds) >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms"


def _line(row):
    low, median, high = row["seconds_quartiles"]
    ratio = "-"
    if row["ratio_quartiles"]:
        ratio = "{1:.2f} ({0:.2f} to {2:.2f})".format(*row["ratio_quartiles"])
    running, share = row["running_bytes"], row["share_of_matmul_rate"]
    cells = [
        row["name"],
        f"{time_text(median)} ({time_text(low)} to {time_text(high)})",
        ratio,
        f"{row['items_per_second']:.4g}",
        time_text(row["first_seconds"]),
        f"{_mib(row['peak_bytes'])} "
        f"({_mib(row['peak_bytes'] - row['baseline_bytes'])}) MiB",
        f"{_mib(running)} MiB" if running else "-",
        f"{share:.0%}" if share else "-",
    ]
    return f"| {' | '.join(cells)} |"


def _mib(size):
    return f"{size / 2**20:.0f}"
