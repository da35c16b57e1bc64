"""Make the box, hold CMD in it, release, freeze, kill; stage what it writes and apply it."""
