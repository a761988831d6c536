# SPDX-License-Identifier: Apache-2.0
"""The squares of a tensor, added up on a GPU."""

import torch  # noqa: F401 - loads the libraries that the module needs

from torch_extension._C import squares

__all__ = ["squares"]
