"""Where no signature fits: the causes that speak in the words of the log. A place to look, and no answer.

Of 162 logs in words that no signature knew, 66 had their cause first here and 109 among the three. That is too little
to call it a cause, and better than nothing to go by.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from cuwheel.diagnosis.causes import knowledge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.diagnosis.rows import CauseFile
    from cuwheel.diagnosis.text import Log

_COUNT = 3
_LINES = 400  # that tell of a failure: the first ones matter
_LETTERS = 1000  # of a line
_LENGTH = 0.7  # how much a cause with many words is held back: with 1 it is the cosine of two texts
_WORD = re.compile(r"[a-z][a-z_+]{1,40}")
_HOLES = re.compile(r"\{[^{}]*\}|[<>|*]")
_FAILURE = re.compile(
    r"error|fail|fatal|cannot|can't|could not|couldn't|not found|no such|unable|missing|undefined|unsupported|invalid"
    r"|exception|abort|killed|denied|mismatch|incompatible|requires|unknown"
)
_OF_CUDA = re.compile(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse|toolkit|tlass|py)|nv(?:cc|idia|rtc|ml|link|jitlink|toolsext)|nccl|tensorrt|ptxas|cubin"
    r"|\bsm_?\d|compute_|\bgpu|\.cuh?\b|torch|tensorflow|\bjax|onnxruntime|triton|glibc|host compiler|\bcl\.exe|msvc"
)


def nearest(log: Log) -> tuple[str, ...]:
    """Ids, the nearest first; none for a log that does not speak of such things at all."""
    if not _OF_CUDA.search(log.folded):
        return ()
    causes = knowledge().causes
    lines = [line[:_LETTERS].lower() for line in log.lines]
    lines = list(islice(filter(_FAILURE.search, lines), _LINES)) or lines[:_LINES]
    words = {term for line in lines for term in _terms(line)}
    spoken = {id_: Counter(term for text in _texts(file) for term in set(_terms(text))) for id_, file in causes.items()}
    spread = Counter(term for terms in spoken.values() for term in terms)
    rare = {term: math.log(len(causes) / count) for term, count in spread.items()}
    scores = {id_: _score(terms, words, rare) for id_, terms in spoken.items()}
    return tuple(id_ for id_ in sorted(scores, key=lambda id_: -scores[id_])[:_COUNT] if scores[id_])


def _score(terms: Counter[str], there: set[str], rare: Mapping[str, float]) -> float:
    length = math.sqrt(sum((math.log1p(count) * rare[term]) ** 2 for term, count in terms.items()))
    shared = sum(math.log1p(terms[term]) * rare[term] ** 2 for term in there & terms.keys())
    return shared / length**_LENGTH if length else 0.0


def _texts(file: CauseFile) -> Iterator[str]:
    yield file.title
    yield file.why
    for signature in file.signature:
        for text in (*signature.any, *signature.needs):
            yield _HOLES.sub(" ", text)
    for example in file.example:
        yield from (line for line in example.log.splitlines() if _FAILURE.search(line.lower()))


def _terms(text: str) -> Iterator[str]:
    """Words, and pairs of them."""
    words = _WORD.findall(text.lower())
    yield from words
    yield from map(" ".join, pairwise(words))
