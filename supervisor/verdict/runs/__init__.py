"""Runs held against each other: what each says to others, where they meet, and which count together."""
