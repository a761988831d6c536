"""The workflow that builds, proves, publishes and rebuilds, written for a project: nothing but cuwheel's verbs."""
