"""Runs that were kept: read, judged again, held against each other, and their stages disposed of."""
