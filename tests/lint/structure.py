#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reports the structure of the C sources: sizes, functions, include cycles. This is a report, not a test.

  structure.py [TREE [BUILD]]   reports on TREE (by default the current folder); with a build folder
                                also how many files use each external function

A module is a folder of src/, or train, bench or tools.
"""
import collections
import os
import re
import statistics
import subprocess
import sys

TREES = ("src", "train", "bench", "tools")
SOURCE = re.compile(r"\.(c|h|def|cu|cuh)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
FUNCTION = re.compile(r"^[A-Za-z_][^;={}#]*\)\n\{\n(.*?)^\}", re.M | re.S)


def module_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" and len(parts) > 2 else parts[0]


def sources(tree):
    for top in TREES:
        for folder, _, names in os.walk(os.path.join(tree, top)):
            for name in names:
                if SOURCE.search(name):
                    yield os.path.relpath(os.path.join(folder, name), tree)


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)
    return re.sub(r"^\s*//.*$", "", text, flags=re.M)


def code_lines(text):
    return sum(1 for line in without_comments(text).split("\n") if line.strip())


def cycles(edges):
    """Returns the strongly connected components of more than one node (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10000)
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def externals(build):
    """Returns the external functions: name -> (file that defines it, files that use it), of one build folder."""
    defined, used = {}, collections.defaultdict(set)
    for top in TREES + ("python",):
        for folder, _, names in os.walk(os.path.join(build, top)):
            for name in names:
                if not name.endswith(".o") or folder.endswith("/.libs"):
                    continue
                path = os.path.join(folder, name)
                source = os.path.relpath(os.path.join(folder, name[:-2].split("-")[-1]), build)
                objects = [path, os.path.join(folder, ".libs", name)]
                listing = subprocess.run(["nm", "-P", *filter(os.path.exists, objects)], capture_output=True,
                                         text=True, check=True).stdout
                for line in listing.split("\n"):
                    words = line.split()
                    if len(words) > 1 and words[1] == "T":
                        defined.setdefault(words[0], source)
                    elif len(words) > 1 and words[1] == "U":
                        used[words[0]].add(source)
    own = {name: source for name, source in defined.items()
           if name.startswith("disti_") or not source.startswith("src/")}
    return {name: (source, used[name] - {source}) for name, source in own.items() if name != "main"}


def main(tree, build):
    sizes = collections.defaultdict(lambda: [0, 0, 0])
    lengths, edges, module_edges = [], collections.defaultdict(set), collections.defaultdict(set)
    forwarders = 0
    for path in sources(tree):
        with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as file:
            text = file.read()
        for key in (module_of(path), "all"):
            sizes[key][0] += 1
            sizes[key][1] += text.count("\n")
            sizes[key][2] += code_lines(text)
        for body in FUNCTION.findall(without_comments(text)):
            lines = [line for line in body.split("\n") if line.strip()]
            lengths.append(len(lines) + 3)
            forwarders += len(lines) == 1 and re.match(r"\s*(return )?\w+\([\w, ]*\);$", lines[0]) is not None
        for target in INCLUDE.findall(text):
            for base in (os.path.dirname(path), "src", ""):
                found = os.path.normpath(os.path.join(base, target))
                if os.path.exists(os.path.join(tree, found)):
                    edges[path].add(found)
                    if module_of(path) != module_of(found):
                        module_edges[module_of(path)].add(module_of(found))
                    break
    print("module                       files   lines    code")
    for key in sorted(sizes, key=lambda key: (key == "all", key)):
        print("%-26s %7d %7d %7d" % (key, *sizes[key]))
    print("functions %d, code lines of one: median %d, mean %.1f; only forward to another: %d" %
          (len(lengths), statistics.median(lengths), statistics.mean(lengths), forwarders))
    print("include cycles: of files %d, of modules %d" % (len(cycles(edges)), len(cycles(module_edges))))
    for component in cycles(edges) + cycles(module_edges):
        print("  " + " ".join(component))
    if build:
        table = externals(build)
        one = {name: entry for name, entry in table.items() if len(entry[1]) == 1}
        within = sum(module_of(source) == module_of(next(iter(users))) for source, users in one.values())
        print("external functions %d; used by one other file %d: inside a module %d, across modules %d; by none %d" %
              (len(table), len(one), within, len(one) - within,
               sum(not users for _, users in table.values())))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".", sys.argv[2] if len(sys.argv) > 2 else None)
