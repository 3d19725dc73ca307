"""Which of many cases to run: together they hold every pair of values of two factors that any of them holds."""

import collections
import itertools


def pairs(case):
    """Each two factors of a case, by their places, with the values that it has of them."""
    return list(itertools.combinations(enumerate(case), 2))


def covering(cases, first=()):
    """Some of the cases, behind those that come first: a pair that a case has is in one of them. Of the same cases, always the same."""
    pairs_of = {case: pairs(case) for case in cases}
    holding = collections.defaultdict(list)
    for case, its_pairs in pairs_of.items():
        for pair in its_pairs:
            holding[pair].append(case)
    chosen = list(first)
    covered = {pair for case in first for pair in pairs(case)}
    # What few have has the least choice, so it is chosen first.
    for pair, candidates in sorted(holding.items(), key=lambda held: len(held[1])):
        if pair not in covered:
            best = max(candidates, key=lambda case: sum(each not in covered for each in pairs_of[case]))
            chosen.append(best)
            covered.update(pairs_of[best])
    return chosen
