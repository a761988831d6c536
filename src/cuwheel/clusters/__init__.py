"""Work of several verbs on many machines: tasks, the workers that take them, and what happens when one fails."""
