"""Queries and documents with their relevance, from tables."""

import posixpath
import warnings

from data_pipeline.tasks import examples
from data_pipeline.tasks import tables as table_files


def read_examples(tree, name, task, split, columns=None):
    """The pairs of a query and a document of a file.

    Queries without an id are numbered as they appear, documents by their row.

    Args:
        tree: file_trees.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "ranking".
        split: str; in a test split the relevance may be missing.
        columns: as `table_columns.parse_columns` takes it.

    Returns:
        list of RankingExample.

    Raises:
        ValueError: something is wrong with the file, or two queries have the
            same id.
    """
    place, file = tree.place(name), posixpath.basename(name)
    is_test = split.startswith("test")
    found, queries, numbers, negative = [], {}, {}, 0
    rows = table_files.read_rows(tree, name, task, split, columns)
    for index, (number, values) in enumerate(rows):
        query, relevance = values["query"], values["relevance"]
        query_id = values["query_id"]
        if not query_id:
            query_id = str(numbers.setdefault(query, len(numbers)))
        if queries.setdefault(query_id, query) != query:
            raise ValueError(
                f"{place}, row {number}: the query {query_id} has another "
                f"text here than before ({queries[query_id]!r})."
            )
        if relevance or not is_test:
            try:
                relevance = table_files.parse_number(relevance)
            except ValueError as error:
                raise ValueError(f"{place}, row {number}: {error}") from None
            negative += relevance < 0
            relevance = max(0.0, relevance)
        found.append(
            examples.RankingExample(
                query_id,
                query,
                values["document_id"] or str(index),
                values["document"],
                None if relevance in (None, "") else relevance,
                f"{file}, row {number}",
            )
        )
    if negative:
        # TREC marks spam with -2.
        warnings.warn(
            f"{place}: {negative} rows with a relevance below 0 read as 0",
            stacklevel=2,
        )
    if not found:
        raise ValueError(f"{place}: the file holds no examples.")
    return found
