"""Tells in what many rows differ. pytest would compare them line by line, for longer than a test may take."""

import collections


def assert_same_rows(came, expected, seed):
    came, expected = collections.Counter(came), collections.Counter(expected)
    more, less = came - expected, expected - came
    assert came == expected, (
        f"seed {seed}: {more.total()} rows too many, as {list(more.items())[:5]}; {less.total()} are missing, as {list(less.items())[:5]}"
    )
