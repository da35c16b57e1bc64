"""Pure folds from events to facts, reconciled with the final state."""
