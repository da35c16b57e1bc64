"""From the end of a trial to its seal: what is found on disk, the verdicts, the commit, the argument."""
