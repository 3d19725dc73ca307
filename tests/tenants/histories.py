"""Whether what transactions saw and did can have been, at a level of isolation (after Kingsbury and Alvaro, Elle, VLDB 2020).

Transactions append numbers to lists, each number once, and read whole lists: from what is read follows who came before whom. Who
follows itself is an anomaly. A register that is read before each write is such a list, too (`registers_as_lists`).
"""

import bisect
import collections
import dataclasses
import graphlib
import itertools
import math

READ_COMMITTED, SNAPSHOT, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"


@dataclasses.dataclass
class Transaction:
    """Steps are ("append", key, number) and ("read", key, numbers seen)."""

    begin: float
    steps: list = dataclasses.field(default_factory=list)
    end: float = math.inf
    # "committed" if that was acknowledged, "aborted" if it cannot have committed, else "unknown".
    outcome: str = "unknown"

    def appended(self, key):
        return [number for kind, where, number in self.steps if kind == "append" and where == key]

    def of_kind(self, kind):
        return [(key, what) for step, key, what in self.steps if step == kind]


def check(transactions, level):
    """What cannot have been, as sentences; the last transaction has to read all lists when all others have ended."""
    order = {key: seen for key, seen in transactions[-1].of_kind("read")}
    writers = {number: one for one in transactions for _, number in one.of_kind("append")}
    found = {number for numbers in order.values() for number in numbers}
    happened = [
        one for one in transactions
        if one.outcome == "committed" or one.outcome == "unknown" and any(number in found for _, number in one.of_kind("append"))
    ]  # fmt: skip
    wrong = wrong_elements(happened, order, writers, found)
    return wrong or wrong_orders(happened, order, writers, level)


def wrong_elements(happened, order, writers, found):
    """What is seen of single lists that nobody may see."""
    wrong = [f"{number} is twice in list {key}" for key, seen in order.items()
             for number, count in collections.Counter(seen).items() if count > 1]  # fmt: skip
    wrong += [f"{number} was committed to list {key} and is not there" for one in happened
              for key, number in one.of_kind("append") if number not in found]  # fmt: skip
    for one in happened:
        for key, seen in one.of_kind("read"):
            foreign = [number for number in seen if writers.get(number) is not one]
            if any(number not in writers or writers[number].outcome == "aborted" for number in foreign):
                wrong.append(f"{seen} of list {key} has what was never committed")
            elif foreign and writers[foreign[-1]].appended(key)[-1] != foreign[-1]:
                wrong.append(f"{seen} of list {key} ends in the midst of a transaction")
            elif foreign != [number for number in order[key] if writers[number] is not one][: len(foreign)]:
                wrong.append(f"{seen} is no beginning of list {key}: {order[key]}")
    return wrong


def wrong_orders(happened, order, writers, level):
    """Transactions that precede themselves."""
    numbered = {id(one): number for number, one in enumerate(happened)}
    before = precedence(happened, order, writers, numbered)
    rivals = antidependencies(happened, order, writers, numbered)
    if level == SERIALIZABLE:
        for reader, writer in rivals:
            before[writer].add(reader)
    try:
        ranks = {node: rank for rank, node in enumerate(graphlib.TopologicalSorter(before).static_order())}
    except graphlib.CycleError as error:
        return [f"a circle at {level}: " + ", then ".join(str(happened[node].steps) for node in error.args[1] if isinstance(node, int))]
    if level == SNAPSHOT:
        after = reverse(before)
        return [f"{happened[reader].steps} saw a part of {happened[writer].steps}"
                for reader, writer in rivals if leads_to(after, ranks, writer, reader)]  # fmt: skip
    return []


def precedence(happened, order, writers, numbered):
    """By transaction: those that came before, since it overwrote them, saw them, or began when they had ended."""
    before = {number: set() for number in numbered.values()}

    def note(first, second):
        if first is not second:
            before[numbered[id(second)]].add(numbered[id(first)])

    for seen in order.values():
        for first, second in itertools.pairwise(seen):
            note(writers[first], writers[second])
    for one in happened:
        for _, seen in one.of_kind("read"):
            foreign = [number for number in seen if writers[number] is not one]
            if foreign:
                note(writers[foreign[-1]], one)
    # A chain of moments keeps the order in time short.
    ends = sorted((one.end, numbered[id(one)]) for one in happened if one.outcome == "committed")
    for place, (_, number) in enumerate(ends):
        before[f"moment {place}"] = {number, f"moment {place - 1}"} if place else {number}
    moments = [end for end, _ in ends]
    for one in happened:
        place = bisect.bisect_left(moments, one.begin) - 1
        if place >= 0:
            before[numbered[id(one)]].add(f"moment {place}")
    return before


def antidependencies(happened, order, writers, numbered):
    """Pairs of a reader and who wrote next what it had read."""
    pairs = set()
    for one in happened:
        for key, seen in one.of_kind("read"):
            foreign = [number for number in seen if writers[number] is not one]
            rest = order[key][order[key].index(foreign[-1]) + 1 :] if foreign else order[key]
            following = next((writers[number] for number in rest if writers[number] is not one), None)
            if following is not None:
                pairs.add((numbered[id(one)], numbered[id(following)]))
    return pairs


def reverse(before):
    after = collections.defaultdict(set)
    for node, others in before.items():
        for other in others:
            after[other].add(node)
    return after


def leads_to(after, ranks, begin, end):
    """Whether there is a way, along which ranks only rise."""
    todo, met = [begin], set()
    while todo:
        node = todo.pop()
        if node == end:
            return True
        if node not in met and ranks[node] < ranks[end]:
            met.add(node)
            todo.extend(after[node])
    return False


def registers_as_lists(transactions):
    """Registers whose every write follows a read in its transaction; a value is written once, None is there at first. Steps are
    ("read", key, value) and ("write", key, value). Gives the same history of lists, and lost updates."""
    following = collections.defaultdict(dict)
    lost = []
    final = dict(transactions[-1].of_kind("read"))
    seen_somewhere = {value for one in transactions for _, value in one.of_kind("read")}
    for one in transactions:
        if one.outcome == "aborted" or one.outcome == "unknown" and not seen_somewhere & {value for _, value in one.of_kind("write")}:
            continue
        mine = {}
        for kind, key, value in one.steps:
            if kind == "write":
                other = following[key].setdefault(mine[key], value)
                if other != value:
                    lost.append(f"register {key}: {other} and {value} both follow {mine[key]}")
            mine[key] = value
    chains = {}
    for key in final:
        chain, value = [], following[key].get(None)
        while value is not None and value not in chain:
            chain.append(value)
            value = following[key].get(value)
        chains[key] = chain
    lists = []
    for one in transactions:
        steps = []
        for kind, key, value in one.steps:
            if kind == "write":
                steps.append(("append", key, value))
            elif value is None or value in chains[key]:
                steps.append(("read", key, chains[key][: chains[key].index(value) + 1] if value is not None else []))
            else:
                lost.append(f"register {key}: {value} was seen, which follows nothing")
        lists.append(dataclasses.replace(one, steps=steps))
    return lists, lost
