"""One file per view of the RunReport."""
