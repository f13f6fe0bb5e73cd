"""Show and verify records: `python -m data_pipeline.inspect`.

    python -m data_pipeline.inspect RECORDS --record 7

This command prints counts and settings of the set of records, statistics over
some records, and one record as text with its targets in the order of
prediction. The command also verifies the checksums of all shards. The exit
status is 1 if a shard is damaged.
"""

import sys

from data_pipeline.base import command_line
from data_pipeline.base.settings import SEED

# Number of records for the statistics, spread evenly over the split.
_SAMPLE = 1000
_AT_ONCE = 100
_MOST_DAMAGED = 20


def parse_arguments(argv=None):
    """Parse the options of the command."""
    from data_pipeline.records.schema import SPLITS

    parser = command_line.Parser(
        prog="python -m data_pipeline.inspect",
        usage="%(prog)s RECORDS [options]",
        description="Show the contents of records, and verify their checksums.",
    )
    add = parser.add_argument
    add("records", metavar="RECORDS", help="output of build_records")
    add("--split", choices=SPLITS, default="train", help="default: train")
    add(
        "--record",
        type=int,
        default=0,
        metavar="N",
        help="number of the record to show, from 0 (default 0)",
    )
    add(
        "--objective",
        default="permutation",
        help="objective whose targets to show (default permutation)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        help="seed of a run; shows the targets of its first epoch (default 0)",
    )
    add(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not verify checksums; verifying reads all shards",
    )
    return command_line.parse(parser, argv)


def main(argv=None):
    """Run the command, see the docstring of the module.

    Returns:
        int, the exit status: 1 if a shard is damaged, else 0.
    """
    options = parse_arguments(argv)
    if not SEED.holds(options.seed):
        raise ValueError(
            f"`seed` must be {SEED.integer}. Received: seed={options.seed}."
        )
    from data_pipeline.records.reading import tokenizer_of_records
    from data_pipeline.single_records import DamagedRecord
    from data_pipeline.single_records import SingleRecords

    data = SingleRecords(
        options.records, options.split, options.seed, options.objective
    )
    if not 0 <= options.record < data.num_records:
        raise ValueError(
            f"the {options.split} split of {options.records} has "
            f"{data.num_records:,} records, from 0 on. Received: --record "
            f"{options.record}."
        )
    command_line.print_lines(*describe(options.records, data.manifest))
    try:
        tokenizer = tokenizer_of_records(options.records, data.manifest)
        lines = describe_sample(data)
        lines += ["", *describe_record(data, tokenizer, options.record)]
    except DamagedRecord:
        if not options.verify:
            raise
        lines = []  # `_verify` lists the damaged shards
    command_line.print_lines(*lines)
    if not options.verify:
        return 0
    return _verify(options.records, data.manifest)


def describe(directory, manifest):
    """Describe the counts and settings of a set of records.

    Args:
        directory: str or path.
        manifest: Manifest.

    Returns:
        list of str, the lines.
    """
    length = manifest.sequence_length
    lines = [f"records    {directory}"]
    for split, shards in manifest.splits.items():
        count = manifest.num_records(split)
        size = sum(shard.bytes for shard in shards)
        lines.append(
            f"  {split:11}{count:,} sequences of {length} tokens in "
            f"{len(shards)} shard(s), {size / 1e6:,.1f} MB"
        )
    directions = "both directions" if manifest.both_directions else "forward"
    settings = [
        f"{manifest.form} permutations",
        directions,
        f"{manifest.reuse_length} tokens reused"
        if manifest.reuse_length
        else "records are independent",
        f"permuted in blocks of {manifest.permutation_length}",
        f"spans of {manifest.spans}",
        f"seed {manifest.seed}",
    ]
    tokenizer = manifest.tokenizer
    totals = (f"{value:,} {name}" for name, value in manifest.totals.items())
    return [
        *lines,
        f"settings   {', '.join(settings)}",
        f"tokenizer  {tokenizer['vocabulary_size']:,} pieces"
        f"{', lower case' if tokenizer['lowercase'] else ''}"
        f"{', accents kept' if tokenizer['keep_accents'] else ''}, SHA-256 "
        f"{tokenizer['sha256'][:12]}",
        f"text       {', '.join(totals)}".replace("_", " "),
    ]


def describe_sample(data):
    """Describe statistics of some records: targets, unknown tokens, pairs.

    For pairs, the statistic is the share of the records in which segment B
    follows segment A in the text.

    Args:
        data: SingleRecords.

    Returns:
        list of str, the lines.
    """
    import numpy as np

    from data_pipeline.tokenization.symbols import UNKNOWN_ID

    count = min(_SAMPLE, data.num_records)
    chosen = np.linspace(0, data.num_records - 1, count).astype(int)
    statistics = []
    # Read in parts, because stored masks take a megabyte per record.
    for part in np.array_split(chosen, -(-count // _AT_ONCE)):
        batch = data.batch(part)
        targets = batch["target_weights"].sum(axis=1)
        unknown = (batch["token_ids"] == UNKNOWN_ID).mean(axis=1)
        statistics.append(np.stack([targets, unknown, batch["is_next"]]))
    targets, unknown, is_next = np.concatenate(statistics, axis=1)
    return [
        f"targets    {targets.mean():.1f} per sequence ({targets.min():.0f} to "
        f"{targets.max():.0f}, room for {data.num_targets}), by "
        f"{data.reader.name}, in {count:,} of them",
        f"unknown    {unknown.mean():.3%} of the tokens",
        f"pairs      in {is_next.mean():.1%} B follows on A",
    ]


def describe_record(data, tokenizer, number):
    """Describe one record: the text of its segments and its targets.

    Args:
        data: SingleRecords.
        tokenizer: Tokenizer.
        number: int, index of the record in the split.

    Returns:
        list of str, the lines.
    """
    row = {name: value[0] for name, value in data.batch([number]).items()}
    ((shard, place),) = data.sources(number)
    ids, reuse = row["token_ids"], data.manifest.reuse_length
    segments = row["segment_ids"].copy()
    segments[:reuse] = -1
    names = {-1: "reused", 0: "A", 1: "B", 2: "cls"}
    lines = [
        f"record {number} of {data.split}: record {place} of {shard}"
        + (", backwards" if row.get("is_reversed") else "")
    ]
    for segment in sorted(set(segments.tolist())):
        segment_ids = ids[segments == segment].tolist()
        text = " ".join(map(tokenizer.id_to_piece, segment_ids))
        lines.append(f"  {names[segment]:8}{text}")
    return lines + _targets(row, tokenizer)


def _targets(row, tokenizer):
    """Format the targets of a record in the order of prediction, as lines."""
    weights = row["target_weights"] > 0
    ids = row["target_ids"][weights]
    positions = row.get("target_positions")
    if "target_mapping" in row:  # stored permutations
        positions = row["target_mapping"].argmax(axis=-1)
    if positions is None:  # next-token targets
        return [f"  {len(ids)} targets, each behind its own token"]
    positions = positions[weights]
    ranks = row.get("factorization_rank")
    if ranks is not None:
        order = ranks[positions]
    elif "target_blocks" in row:
        order = row["target_blocks"][weights]
    else:
        order = positions
    lines = ["  target  rank  position  piece"]
    for place, index in enumerate(order.argsort(kind="stable")):
        rank = "" if order is positions else int(order[index])
        piece = tokenizer.id_to_piece(int(ids[index]))
        lines.append(f"  {place:6}  {rank:4}  {positions[index]:8}  {piece}")
    return lines


def _verify(directory, manifest):
    from data_pipeline.records.manifest import verify_records

    size = sum(x.bytes for shards in manifest.splits.values() for x in shards)
    command_line.print_lines("", f"checking   {size / 1e6:,.1f} MB ...")
    bad = verify_records(directory)
    if not bad:
        command_line.print_lines("all checksums are right")
        return 0
    command_line.print_lines(*(f"damaged    {x}" for x in bad[:_MOST_DAMAGED]))
    more = len(bad) - _MOST_DAMAGED
    if more > 0:
        command_line.print_lines(f"and {more:,} more")
    return 1


def command():
    """Entry point of `xlnet inspect`."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
