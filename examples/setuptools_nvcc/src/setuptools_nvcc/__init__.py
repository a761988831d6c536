# SPDX-License-Identifier: Apache-2.0
"""A dot product, in an extension module."""

from setuptools_nvcc._kernel import dot

__all__ = ["dot"]
