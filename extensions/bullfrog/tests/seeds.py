"""How much of the long tests runs. BULLFROG_SEEDS is how many histories there are of each kind in each way, BULLFROG_SEED the first seed;
without it there is a selection: each kind in one of the ways, in turn."""

import os

COUNT = int(os.environ.get("BULLFROG_SEEDS", 0))
FIRST = int(os.environ.get("BULLFROG_SEED", 1))


def seeds(of_each=1):
    """The seeds, `of_each` for each of COUNT; one of the selection."""
    return range(FIRST, FIRST + max(of_each * COUNT, 1))


def in_turn(choices, turn, turns):
    """All choices, or of the selection those whose turn it is."""
    return list(choices) if COUNT else list(choices)[turn::turns]
