"""The command line: words to a request, what the commands beside `run` answer, and what is printed."""
