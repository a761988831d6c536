"""Why it failed: from the text of a log to causes, evidence, fixes and ways out."""
