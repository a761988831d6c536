"""Programs that run beside a measurement, or in the environment that is measured: the standard library alone."""
