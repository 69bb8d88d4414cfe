"""Plans: everything that a run may do to private records, fixed and certified beforehand."""
