#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The kept inputs of the fuzzers: one archive per target, tests/fuzz/corpus/TARGET.zip.

  corpus.py unpack FOLDER           unpacks every archive to FOLDER/TARGET, replacing its files
  corpus.py add TARGET FILE...      adds inputs to a target's archive
  corpus.py replace TARGET FOLDER   makes a target's archive from the files in FOLDER

The name of an input is the first 12 digits of its SHA-1, as in libFuzzer. Equal inputs give equal
archives, byte by byte.
"""
import hashlib
import os
import shutil
import sys
import zipfile

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def archive_of(target):
    return os.path.join(CORPUS, target + ".zip")


def read(target):
    if not os.path.exists(archive_of(target)):
        return []
    with zipfile.ZipFile(archive_of(target)) as archive:
        return [archive.read(name) for name in archive.namelist()]


def write(target, inputs):
    named = {hashlib.sha1(data).hexdigest()[:12]: data for data in inputs}
    with zipfile.ZipFile(archive_of(target) + ".new", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(named):
            archive.writestr(zipfile.ZipInfo(name), named[name], zipfile.ZIP_DEFLATED)
    os.replace(archive_of(target) + ".new", archive_of(target))


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def unpack(folder):
    for name in sorted(os.listdir(CORPUS)):
        target, extension = os.path.splitext(name)
        if extension == ".zip":
            shutil.rmtree(os.path.join(folder, target), ignore_errors=True)
            with zipfile.ZipFile(os.path.join(CORPUS, name)) as archive:
                archive.extractall(os.path.join(folder, target))


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "unpack":
        unpack(arguments[1])
    elif len(arguments) > 2 and arguments[0] == "add":
        write(arguments[1], read(arguments[1]) + [contents(path) for path in arguments[2:]])
    elif len(arguments) == 3 and arguments[0] == "replace":
        write(arguments[1], [contents(entry.path) for entry in os.scandir(arguments[2]) if entry.is_file()])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
