"""How often `cuwheel explain` names the cause of failures that somebody has labelled.

    python benchmarks/score_explain.py FILE.jsonl... [--misses] [--curve] [--fit]

Each line of a file is an object: `log`, `cause` and `alt_causes` (causes that are right too). The label `other` means
a cause that is none of ours: no answer, or that it is not CUDA's doing, is right then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from cuwheel.diagnosis import text
from cuwheel.diagnosis.confidence import weight_of
from cuwheel.diagnosis.explain import explain

NOT_CUDA, OTHER = "not-cuda", "other"
RIGHT, PARTLY, WRONG, UNKNOWN = "right", "right, but not first", "wrong", "not known"
STEPS = (0.2, 0.5, 0.65, 0.8, 0.9, 0.96, 1.0)  # of confidence, for --curve
PRIOR = 4
AMONG = 3  # causes, of which one must be right for an answer to be partly right


def outcome(case: dict[str, Any], found: list[str]) -> str:
    labels = {case["cause"], *case.get("alt_causes", ())}
    if OTHER in labels:
        labels.add(NOT_CUDA)
    if not found:
        return RIGHT if NOT_CUDA in labels else UNKNOWN
    if found[0] in labels:
        return RIGHT
    return PARTLY if labels.intersection(found[:AMONG]) else WRONG


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path)
    parser.add_argument("--misses", action="store_true", help="list what was not right")
    parser.add_argument("--curve", action="store_true", help="how often a first cause was right, by its confidence")
    parser.add_argument("--fit", action="store_true", help="the points of confidence.py's curve, from these logs")
    args = parser.parse_args()
    answers: list[tuple[float, bool]] = []
    for path in args.files:
        counts: Counter[str] = Counter()
        for index, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            case = json.loads(line)
            causes = explain(text.parse(case["log"])).causes
            found = [each.id for each in causes]
            counts[result := outcome(case, found)] += 1
            answers += [(causes[0].confidence, result == RIGHT)] if causes else []
            if args.misses and result != RIGHT:
                print(f"{case.get('id', index)}: {result}: {case['cause']}, answered {', '.join(found) or 'nothing'}")
        shown = ", ".join(f"{counts[each]} {each}" for each in (RIGHT, PARTLY, WRONG, UNKNOWN))
        print(f"{path.name}: {counts.total()} logs: {shown}")
    for low, high in pairwise(STEPS) if args.curve else ():
        said = [(confidence, right) for confidence, right in answers if low <= confidence < high]
        if said:
            mean, share = (sum(each) / len(said) for each in zip(*said, strict=True))
            print(f"confidence {low:.2f} to {high:.2f}: {len(said):3} answers, said {mean:.2f}, right {share:.2f}")
    for low, high in pairwise(STEPS) if args.fit else ():
        counted = [(weight_of(confidence), right) for confidence, right in answers]
        counted = [(weight, right) for weight, right in counted if low <= weight < high or weight == high == 1]
        if counted:
            weight, share = sum(each for each, _ in counted) / len(counted), sum(right for _, right in counted)
            # Few logs prove little: as if PRIOR more had been right as often as their weight says.
            share = (share + PRIOR * weight) / (len(counted) + PRIOR)
            print(f"weight {weight:.2f}: {len(counted):3} answers, right {share:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
