"""Services outside the box, asked by the supervisor, with its own credentials, what became of their work."""
