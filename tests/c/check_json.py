"""Compares every NAME.json in a folder with NAME.facts beside it, as test_json.c wrote them."""

import json
import pathlib
import re
import sys


def at(document, path):
    for part in path.split("/"):
        if part == "#":
            return len(document)
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def without_replaced(text):
    """How many U+FFFD stand for a run of bad bytes is the decoder's own choice."""
    return re.sub("\ufffd+", "\ufffd", text)


def expected(kind, value):
    if kind == "s":
        return without_replaced(bytes.fromhex(value).decode("utf-8", "replace"))
    return {"i": lambda: int(value), "b": lambda: value == "true", "n": lambda: None}[kind]()


def differences(json_path):
    facts = json_path.with_suffix(".facts").read_text("ascii").splitlines()
    document = json.loads(json_path.read_bytes().decode("utf-8"))  # strict: bad UTF-8 raises
    for line in facts:
        path, kind, value = line.split("\t")
        want, got = expected(kind, value), at(document, path)
        got = without_replaced(got) if isinstance(got, str) else got
        if got != want or type(got) is not type(want):
            yield f"{path}: {got!r:.200} in the JSON, {want!r:.200} from the accessors"


def main():
    passed = failed = 0
    for json_path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
        found = list(differences(json_path))
        for difference in found[:10]:
            print(f"{json_path.name}: {difference}")
        passed, failed = (passed, failed + 1) if found else (passed + 1, failed)
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
