"""The word `lab` of cuwheel's command line: the entry point `cuwheel.verbs` names this."""

from cuwheel.support.verbs import Family, Verb, Word

LAB = Word(
    package="cuwheel_lab",
    shown=Family(
        "find how often a program fails, measure it under load, build a matrix",
        "trials run FILE",
        {"trials": "trials", "bench": "bench", "matrix": "matrix"},
    ),
    verbs=(
        Verb(
            "trials",
            "find how often a program fails, and under which condition",
            "run TRIALS.toml",
            ("trials", "trials_bisect", "trials_report", "trials_service"),
            ("measuring.analysis.Trials", "measuring.bisection.Bisection", "measuring.service.ServiceChange"),
        ),
        Verb(
            "bench",
            "measure a function or command under load, and against another",
            "FILE:NAME",
            ("bench",),
            ("measuring.bench.Bench",),
            "measuring.BenchRequest",
        ),
        Verb(
            "matrix",
            "record each configuration of a matrix, and compare how they ended",
            "MATRIX.toml",
            ("matrix",),
            ("measuring.matrix.Matrix",),
        ),
    ),
    names={"cuwheel_lab.measuring.bisection": ("Odds", "Span")},
)
