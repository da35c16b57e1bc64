"""Run one trial of any agent runner in a box, watch it from outside, and judge it from the log alone."""
