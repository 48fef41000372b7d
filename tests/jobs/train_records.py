# SPDX-License-Identifier: BSD-3-Clause
"""Checks the records of train_mnist: train_records.py metrics|trace|page|tensorboard FILE ..."""
import collections
import glob
import html.parser
import json
import sys


def metrics(path, steps, tests, cut="0"):
    """Checks that each line but `cut` is an object, and that all steps and tests are there, in order."""
    seen, bad = collections.defaultdict(list), 0
    for line in open(path):
        try:
            record = json.loads(line)
        except ValueError:
            bad += 1
            continue
        seen[record["event"]].append(record)
    assert bad == int(cut), f"{bad} lines are not JSON"
    assert [r["step"] for r in seen["step"]] == list(range(1, int(steps) + 1)), "steps"
    assert len(seen["test"]) == int(tests), "tests"
    for r in seen["step"]:
        parts = sum(r[p + "_s"] for p in ("data", "forward", "backward", "wait", "update"))
        assert 0 < r["forward_s"] and 0 < r["backward_s"] and parts <= r["step_s"] * 1.001, r
        assert r["loss"] > 0 and r["samples_per_s"] > 0 and r["samples"] > 0, r
    for r in seen["test"]:
        assert r["accuracy"] == r["correct"] / r["count"], r


def trace(path, ranks, steps):
    """Checks the schema of trace events, the order of each rank's spans, and that buckets end in their step."""
    file = json.load(open(path))
    error = file["otherData"]["clock_error_us"]
    assert 0 <= error < 1e6, error
    spans, names = collections.defaultdict(list), set()
    for e in file["traceEvents"]:
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int) and e["name"], e
        assert e["ph"] in ("M", "X", "i"), e
        if e["ph"] == "X":
            assert e["ts"] >= -error and e["dur"] >= 0 and e["args"]["step"] >= 1, e
            spans[e["pid"], e["tid"]].append(e)
        elif e["ph"] == "M":
            names.add((e["name"], e["pid"]))
    assert {pid for pid, _ in spans} == set(range(int(ranks)))
    for rank in range(int(ranks)):
        assert ("process_name", rank) in names
        row = spans[rank, 0]
        for a, b in zip(row, row[1:]):
            assert a["ts"] + a["dur"] <= b["ts"] + 0.01, (a, b)
        for part in ("data", "forward", "backward", "wait", "update"):
            assert {e["args"]["step"] for e in row if e["name"] == part} == set(
                range(1, int(steps) + 1)), part
        waits = {e["args"]["step"]: e["ts"] + e["dur"] for e in row if e["name"] == "wait"}
        buckets = [e for (pid, tid), row in spans.items() if pid == rank and tid for e in row]
        assert buckets, "no bucket"
        for e in buckets:
            assert e["ts"] + e["dur"] <= waits[e["args"]["step"]] + 0.01, e
    # No rank's wait ends before all ranks have started their last bucket, on a common clock.
    for step in range(1, int(steps) + 1):
        last, ends = {}, []
        for (rank, tid), row in spans.items():
            for e in row:
                if e["args"]["step"] == step and tid > 0:
                    last[rank] = max(last.get(rank, 0), e["ts"])
                elif e["args"]["step"] == step and e["name"] == "wait":
                    ends.append(e["ts"] + e["dur"])
        assert not last or max(last.values()) <= min(ends) + error + 0.01, step


class Page(html.parser.HTMLParser):
    """Checks that all elements are closed, and that no external resource is used."""
    alone = {"meta", "img", "line", "rect", "circle", "polyline", "polygon", "path", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], collections.Counter()

    def handle_starttag(self, tag, attrs):
        self.seen[tag] += 1
        for name, value in attrs:
            if name in ("src", "href"):
                assert value.startswith("data:"), value
        if tag not in self.alone:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.alone:
            assert self.open and self.open[-1] == tag, (tag, self.open)
            self.open.pop()


def page(path):
    reader = Page()
    reader.feed(open(path).read())
    assert not reader.open, reader.open
    assert reader.seen["svg"] == 6 and reader.seen["img"] == 1, reader.seen


def tensorboard(folder, steps, tests):
    """Checks that TensorBoard's reader returns the same scalars as the lines of JSON."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    assert glob.glob(folder + "/events.out.tfevents.*")
    reader = EventAccumulator(folder, size_guidance={"scalars": 0})
    reader.Reload()
    tags = {"loss/train": steps, "lr": steps, "samples_per_s": steps, "loss/test": tests,
            "accuracy": tests}
    assert set(reader.Tags()["scalars"]) == set(tags), reader.Tags()
    for tag, count in tags.items():
        assert len(reader.Scalars(tag)) == int(count), (tag, len(reader.Scalars(tag)))


{"metrics": metrics, "trace": trace, "page": page, "tensorboard": tensorboard}[sys.argv[1]](
    *sys.argv[2:])
