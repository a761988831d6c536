"""Sphinx's settings for the documentation; `documentation.py` calls it."""

project = "cuwheel"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "cuwheel"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_favicon = "icon.svg"
myst_heading_anchors = 4
exclude_patterns = ["README.md"]
