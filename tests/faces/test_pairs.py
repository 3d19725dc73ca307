"""Cases that are chosen hold all pairs that there are."""

import itertools
import random

from pairs import covering, pairs


def held(cases):
    return {pair for case in cases for pair in pairs(case)}


def test_all_pairs_are_held_by_few_cases():
    dice = random.Random(1)
    for _ in range(50):
        factors = [range(dice.randrange(1, 6)) for _ in range(dice.randrange(2, 6))]
        everything = list(itertools.product(*factors))
        chosen = covering(everything)
        assert held(chosen) == held(everything)
        assert held(chosen[:-1]) != held(everything), "each was chosen for a pair that those before it lack"
        largest = sorted(map(len, factors))[-2:]
        assert len(chosen) <= 2 * largest[0] * largest[1] + 4, (factors, len(chosen))


def test_cases_that_there_are_not_are_not_chosen_and_their_pairs_not_missed():
    everything = [case for case in itertools.product(range(3), repeat=4) if case[0] <= case[1] and case[2] != 2 - case[3]]
    chosen = covering(everything)
    assert set(chosen) <= set(everything) and held(chosen) == held(everything)
    assert ((0, 2), (1, 0)) not in held(everything)


def test_those_that_come_first_are_counted():
    everything = list(itertools.product(range(3), repeat=3))
    first = [(0, 0, 0), (2, 1, 2)]
    chosen = covering(everything, first)
    assert chosen[:2] == first and held(chosen) == held(everything)
    assert len(set(chosen)) == len(chosen), "none twice"
