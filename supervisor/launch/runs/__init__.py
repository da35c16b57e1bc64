"""Where runs are kept, who holds one, and which were ever started here."""
