"""From a folder of wheels to the machine that needs one: the index, its page, variants."""
