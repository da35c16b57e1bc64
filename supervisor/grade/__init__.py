"""Graders in boxes of their own: run on examples before the trial, and on the captured outcome after it."""
