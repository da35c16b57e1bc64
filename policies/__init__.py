"""What may happen in a trial and what is claimed about it."""
