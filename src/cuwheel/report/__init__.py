"""One answer a verb, one document made of it, rendered to terminal, HTML and JSON."""
