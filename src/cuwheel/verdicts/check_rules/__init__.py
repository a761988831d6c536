"""What decides whether a library runs on a machine, in the order in which a program meets it. Start reading here.

Pure: nothing here looks at either.

A package with CUDA code passes five doors, and each has its own way to stay shut:

1. **The installer** goes by the tags in the wheel's name. They speak of Python, system, processor and glibc, and not
   of CUDA: a wheel without a line of code for a GPU installs there all the same.
2. **The loader** goes by what the library itself says: its processor, the newest glibc symbol in it, the libraries
   that it needs. A library that needs libcuda.so.1 cannot be imported where there is no driver.
3. **The driver** must be of the CUDA major that the code was compiled by, or newer. Within a major, machine code of
   a newer minor runs on an older driver; PTX of a newer minor does not, because the driver has to compile that
   itself.
4. **The choice of code** is made for each container of a library by itself. Machine code that the GPU can execute is
   taken first: of its own major, and of no later minor. Only where there is none is PTX compiled: the highest that
   fits, even if the driver is too old for it and another would have done. `a` code runs on one capability alone, `f`
   code on its family.
5. **The link** of relocatable code, where no linked code fits, happens at load, and only if every object has
   something that fits. Where nothing does, the error is another one (500) than for plain code (209): for a package
   that is built so, 500 does not mean that it was built for another platform.

A rule is a small function that yields findings. Each names its id, whose severity, reason, source and fix are a row
of `support/finding_rules.toml`. What the rules stand on was run on hardware: docs/why/truth.md.
"""

from __future__ import annotations

from cuwheel.verdicts.check_rules import code, driver, host

HOST_RULES = host.RULES  # what keeps a library from being loaded, GPU or not
CODE_RULES = (
    *driver.RULES,
    *code.RULES,
)  # what becomes of its device code: all of it is in the prediction, here in words
PACKAGE_RULES = host.PACKAGE_RULES  # of the package as a whole: its tags, and whether it has a library to load at all
ANOTHER_MACHINE = frozenset({"wrong-processor", "wrong-system"})  # beyond these nothing is worth saying
STARTS_SLOWLY = frozenset({"compiled-by-driver", "linked-at-load"})  # said only of what does run
