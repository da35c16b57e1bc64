"""Pure judgement: claim and facts to open effects, finality, separation, scope and the completion argument."""
