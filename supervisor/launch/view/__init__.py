"""What a trial, or a grader, sees of the host's files, and the mounts that make it."""
