"""Every rule about binaries and machines, in the order in which a program meets them. Start reading here.

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

A rule is a small function with a stable id, why it matters, and where that is known from (`rule.py`). What it finds
is told by `doctor`, `inspect` and `check`; its page in docs/rules is written from it. What the rules stand on was
run on hardware: docs/truth.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuwheel.verdicts import check_rules, library_rules, machine_rules

if TYPE_CHECKING:
    from cuwheel.verdicts.rule import Rule

# Heading, who tells it, and the rules.
GROUPS: tuple[tuple[str, str, tuple[Rule[Any], ...]], ...] = (
    ("Packages", "what `cuwheel check` finds of a whole wheel", check_rules.PACKAGE_RULES),
    ("Loading", "what keeps a library from being loaded, as `cuwheel check` finds it", check_rules.HOST_RULES),
    ("Device code on machines", "what `cuwheel check` finds", check_rules.CODE_RULES),
    ("Libraries", "what `cuwheel inspect` finds", library_rules.RULES),
    ("Machines", "what `cuwheel doctor` finds", machine_rules.RULES),
)
