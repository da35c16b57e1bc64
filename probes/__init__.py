"""The witnesses: sources of events that the trial cannot reach."""
