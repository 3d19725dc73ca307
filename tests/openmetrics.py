"""Reads OpenMetrics text as strictly as Prometheus does, and says what is wrong with it."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABELS = r'\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"(?:,(?!\})|(?=\})))*\}'
SAMPLE = re.compile(rf"({NAME})({LABELS})? (\S+)")
# What the names of a family's samples end with, by its type.
ENDS = {"counter": {"_total", "_created"}, "gauge": {""}, "histogram": {"_bucket", "_count", "_sum"}, "info": {"_info"}}


class Family:
    def __init__(self, name):
        self.name, self.type, self.help, self.samples = name, None, None, {}

    def check(self):
        assert self.type in ENDS and self.help, f"a family without type or help: {self.name}"
        assert self.samples, f"a family without samples: {self.name}"
        for (name, labels), value in self.samples.items():
            assert name[len(self.name):] in ENDS[self.type], f"a sample of {self.type} {self.name} called {name}"
            assert self.type == "gauge" or value >= 0, f"{name}{labels} is {value}"
        if self.type == "histogram":
            self.check_buckets()

    def check_buckets(self):
        buckets = {}
        for (name, labels), value in self.samples.items():
            if name.endswith("_bucket"):
                end = re.search(r'le="([^"]*)"', labels)[1]
                others = re.sub(r'(\{|,)le="[^"]*",?', r"\1", labels).replace(",}", "}")
                buckets.setdefault(others if others != "{}" else "", []).append((float(end.replace("+Inf", "inf")), value))
        for others, ends in buckets.items():
            assert ends == sorted(ends) and [count for _, count in ends] == sorted(count for _, count in ends), (self.name, ends)
            assert ends[-1] == (math.inf, self.samples[f"{self.name}_count", others]), (self.name, others, ends)


def families(text):
    """The families of a scrape, by name."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], "the text ends early"
    found = {}
    for line in lines[:-2]:
        if line.startswith("#"):
            _, kind, name, told = line.split(" ", 3)
            if not found or list(found)[-1] != name:
                assert name not in found, f"{name} is there twice"
                assert re.fullmatch(NAME, name), line
                found[name] = Family(name)
            assert kind in ("HELP", "TYPE", "UNIT") and not found[name].samples, line
            setattr(found[name], kind.lower(), told)
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, f"no sample: {line!r}"
            family = list(found.values())[-1]
            key = sample[1], sample[2] or ""
            assert key not in family.samples, f"twice: {line}"
            family.samples[key] = float(sample[3])
    for family in found.values():
        family.check()
    return found
